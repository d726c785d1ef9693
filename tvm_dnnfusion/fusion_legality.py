"""Whether an operator may join a block: Table 3 on the block's type, and hard limits of kernels.

Listing 1 of the paper writes the check for pairs of operators, but its Figure 3 needs the type of
the block: after ``Add -> Conv`` the block is Many-to-Many and ``GEMM -> Add``, green as a pair, is
refused. For a consumer the whole block is the first type. For a producer the second type is that
of the paths from its edge through the block, so that what the block holds beside those paths does
not matter, except that a block never holds two Many-to-Many operators.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from .fusion_block import COLOURS, MANY_TO_MANY, Block
from .fusion_table import IMPEDANCE, Colour
from .recompute import recomputed_flops


@dataclass(frozen=True)
class Limits:
    """Bounds that no group of several operators exceeds; single operators are taken as they are.

    Attributes
    ----------
    max_arguments
        Parameters of the kernel: distinct tensors read and written, scalar constants excepted.
        OpenCL guarantees 128 (8 bytes each in the smallest CL_DEVICE_MAX_PARAMETER_SIZE).
    max_operators
        Operators per group. TVM's FuseOps stops at 256; half of it keeps single kernels quick to
        compile and loses one kernel in 128.
    max_recompute
        FLOPs executed more than once, relative to the group's FLOPs, if the kernel stored none of
        its intermediates. Unlimited where kernels can store them, as on CPUs; for targets without
        a barrier across the grid a small number such as 0.5 makes sense.
    """

    max_arguments: int = 128
    max_operators: int = 128
    max_recompute: float = math.inf


class Joining(NamedTuple):
    """What Table 3 says about a node and a block.

    Attributes
    ----------
    colour
        The worst over the edges between them.
    rank
        Rank of the joint block's type (meaningless if red).
    first, second
        The types of the cell that gave the colour, by rank.
    """

    colour: int
    rank: int
    first: int
    second: int


class Objection(NamedTuple):
    """Why a node may not join a block, and whether that can change when the block grows."""

    reason: str
    may_pass: bool


def too_wide(block: Block, node: int, limits: Limits) -> Objection | None:
    """Object in constant time to an operator with more operands than the block could ever absorb."""
    least = block.index.inputs[node] - len(block.outside)
    return _argument_objection(f"at least {least}", limits) if least > limits.max_arguments else None


def joining(block: Block, node: int) -> Joining:
    """Look up every edge between ``block`` and ``node``, which is outside, in Table 3."""
    if block.reads_from(node):
        return _join_consumer(block, node)
    return _join_producer(block, node)


def _join_consumer(block: Block, node: int) -> Joining:
    first, worst, second = block.rank, -1, 0
    rank = max(first, block.index.types[node])
    for tensor, operand in block.index.operands[node].items():
        if tensor in block.outside:
            rank = max(rank, operand)
            if COLOURS[first][operand] > worst:
                worst, second = COLOURS[first][operand], operand
    return Joining(worst, rank, first, second)


def _join_producer(block: Block, node: int) -> Joining:
    own, rank = block.index.types[node], block.rank
    cells = [(own, own)] if own == MANY_TO_MANY == rank else []
    rank = max(own, rank)
    for tensor in block.index.results[node]:
        for member in block.readers.get(tensor, ()):
            operand = block.index.operands[member][tensor]
            rank = max(rank, operand)
            below = block.below[member]
            cells.append((own, max(operand, below)))
            if operand > block.index.types[member]:  # a use of the member that the block did not have yet
                cells.append((operand, below))
    first, second = max(cells, key=lambda cell: COLOURS[cell[0]][cell[1]])
    return Joining(COLOURS[first][second], rank, first, second)


def why_not(block: Block, node: int, join: Joining, limits: Limits) -> Objection | None:
    """The first rule that keeps ``node`` out of ``block``, or None; cycles and profit are not seen here."""
    if join.colour == Colour.RED:
        first, second = IMPEDANCE[join.first].value, IMPEDANCE[join.second].value
        return Objection(f"{first} followed by {second} is never fused (Table 3)", may_pass=False)
    if len(block.nodes) >= limits.max_operators:
        return Objection(f"the group holds {limits.max_operators} operators, the limit", may_pass=False)
    arguments = block.arguments_with(node)
    if arguments > limits.max_arguments:
        return _argument_objection(str(arguments), limits)
    if limits.max_recompute < math.inf:
        return _recompute_objection(block, node, limits.max_recompute)
    return None


def _argument_objection(arguments: str, limits: Limits) -> Objection:
    text = f"the kernel would take {arguments} arguments, the limit is {limits.max_arguments}"
    return Objection(text, may_pass=True)


def _recompute_objection(block: Block, node: int, limit: float) -> Objection | None:
    nodes = [*block.nodes, node]
    extra = recomputed_flops(block.index.ecg, nodes)
    total = sum(block.index.ecg.nodes[n].flops for n in nodes)
    if extra <= limit * total:
        return None
    text = f"the kernel would compute {extra:.3g} of {total:.3g} FLOPs again, the limit is {limit:g} of them"
    return Objection(text, may_pass=True)
