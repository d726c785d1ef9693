"""What was fused, what was not and why: for people as text, for tools as one JSON object."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relay

from .build import optimise_stock
from .config import Options
from .ecg import ECG, Value
from .errors import OptionError
from .kernels import KernelCount, count_kernels
from .passes.dnnfusion import DNNFusion, bind_params
from .passes.fuse_by_mapping_type import PlannedFunction
from .passes.rewrite_properties import RewritingLog
from .plan import Group


@dataclass(frozen=True)
class BlockReport:
    """One kernel of the plan.

    Attributes
    ----------
    name
        ``block0``, ``block1``, ... in the order in which they run.
    ops
        Operator names in topological order.
    nodes
        Their ids, by which ``why_not`` and ``edge`` name them.
    spans
        Where each came from in the model.
    mapping_type
        By Table 3.
    bytes_kept
        Bytes of intermediate tensors that never leave the block.
    flops
        Of all its operators.
    """

    name: str
    ops: tuple[str, ...]
    nodes: tuple[int, ...]
    spans: tuple[str, ...]
    mapping_type: str
    bytes_kept: int
    flops: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "ops": list(self.ops),
            "nodes": list(self.nodes),
            "spans": list(self.spans),
            "mapping_type": self.mapping_type,
            "bytes_kept": self.bytes_kept,
            "flops": self.flops,
        }


@dataclass(frozen=True)
class Report:
    """The plan of a model next to stock TVM's.

    Attributes
    ----------
    ops
        Operators after canonicalisation and layout, opaque ones included.
    ours, stock
        Kernels and intermediate bytes after ``relay.optimize``.
    blocks
        Kernels of the plan.
    refusals
        Per edge between kernels, why it is one.
    opaque
        Operators that are never grouped, and why.
    seconds
        Per phase.
    rewriting
        Rules that fired and what they saved, and those that were refused.
    """

    ops: int
    ours: KernelCount
    stock: KernelCount
    blocks: tuple[BlockReport, ...]
    refusals: tuple[dict[str, Any], ...]
    opaque: tuple[dict[str, Any], ...]
    seconds: dict[str, float] = field(default_factory=dict)
    rewriting: RewritingLog = field(default_factory=RewritingLog)

    def to_json(self) -> dict[str, Any]:
        """One object, as the command line prints it."""
        return {
            "ops": self.ops,
            "kernels": self.ours.kernels,
            "stock_kernels": self.stock.kernels,
            "planned_kernels": len(self.blocks),
            "intermediate_bytes": self.ours.intermediate_bytes,
            "stock_intermediate_bytes": self.stock.intermediate_bytes,
            "blocks": [b.to_json() for b in self.blocks],
            "why_not": list(self.refusals),
            "opaque_ops": list(self.opaque),
            "rewriting": self.rewriting.to_json(),
            "seconds": {k: round(v, 4) for k, v in self.seconds.items()},
        }

    def to_text(self) -> str:
        """A summary, one line per block, per refused edge and per opaque operator."""
        lines = [
            f"{self.ops} operators in {self.ours.kernels} kernels (stock: {self.stock.kernels})",
            f"{self.ours.intermediate_bytes / 1e6:.1f} MB between kernels "
            f"(stock: {self.stock.intermediate_bytes / 1e6:.1f} MB)",
            "",
        ]
        for block in self.blocks:
            kept = f"{block.bytes_kept / 1e6:.2f} MB kept inside"
            lines.append(f"{block.name}: {block.mapping_type}, {kept}: {' '.join(block.ops)}")
        lines += ["", "Not fused:"]
        lines += [f"{_edge_name(r)}: {r['reason']}" for r in self.refusals]
        lines += self.rewriting.to_lines()
        if self.opaque:
            lines += ["", "Opaque:"]
            lines += [f"{o['op']} (node {o['node']}): {o['reason']}" for o in self.opaque]
        return "\n".join(lines)

    def edge(self, first: str, second: str) -> str:
        """What became of the edges from ``first`` to ``second``, each a node id, an operator or a span.

        Raises
        ------
        OptionError
            No operator of that name.
        """
        producers, consumers = self._find(first), self._find(second)
        found = [
            f"{_edge_name(r)}: {r['reason']}"
            for r in self.refusals
            if r["producer"] in producers and r["consumer"] in consumers
        ]
        for block in self.blocks:
            inside = producers & set(block.nodes), consumers & set(block.nodes)
            if all(inside) and min(inside[0]) < max(inside[1]):  # ids are in topological order
                found.append(f"{first} and {second} are both in {block.name}: {' '.join(block.ops)}")
        return "\n".join(found) or f"no edge leads from {first} to {second}"

    def _find(self, name: str) -> set[int]:
        found = set()
        for block in self.blocks:
            for node, op, span in zip(block.nodes, block.ops, block.spans, strict=True):
                if name in (str(node), op, span):
                    found.add(node)
        found |= {o["node"] for o in self.opaque if name in (str(o["node"]), o["op"])}
        if not found:
            raise OptionError(
                f"no operator {name!r}; give a node id, an operator name or a source node's name"
            )
        return found


def _edge_name(refusal: Mapping[str, Any]) -> str:
    return (
        f"{refusal['producer_op']} (node {refusal['producer']}) -> "
        f"{refusal['consumer_op']} (node {refusal['consumer']})"
    )


def explain(
    mod: tvm.IRModule,
    target: str | tvm.target.Target,
    params: Mapping[str, tvm.nd.NDArray | np.ndarray] | None = None,
    options: Options | None = None,
) -> Report:
    """Plan a model, and count what stock TVM makes of it in the same run.

    Raises
    ------
    TargetError
        An unknown target.
    """
    fusion = DNNFusion(target, params, options)
    sealed = fusion(mod)
    seconds = dict(fusion.trace.seconds)
    start = time.perf_counter()
    ours = count_kernels(optimise_stock(sealed, fusion.target))
    seconds["optimise"] = time.perf_counter() - start
    start = time.perf_counter()
    stock = count_kernels(optimise_stock(bind_params(mod, params or {}), fusion.target))
    seconds["optimise_stock"] = time.perf_counter() - start
    return make_report(fusion.trace.plans, ours, stock, seconds, fusion.trace.rewriting)


def make_report(
    plans: list[PlannedFunction],
    ours: KernelCount,
    stock: KernelCount,
    seconds: dict[str, float],
    rewriting: RewritingLog | None = None,
) -> Report:
    """A report of plans that were made already."""
    blocks: list[BlockReport] = []
    refusals: list[dict[str, Any]] = []
    opaque: list[dict[str, Any]] = []
    for planned in plans:
        ecg = planned.graph.ecg
        blocks += [_block(ecg, g, f"block{len(blocks) + i}") for i, g in enumerate(planned.plan.groups)]
        refusals += [
            {
                "producer": r.producer,
                "producer_op": ecg.nodes[r.producer].op,
                "consumer": r.consumer,
                "consumer_op": ecg.nodes[r.consumer].op,
                "reason": r.reason,
            }
            for r in planned.plan.refusals
        ]
        opaque += [
            {"node": n, "op": ecg.nodes[n].op, "function": planned.name, "reason": reason}
            for n, reason in planned.graph.why_opaque.items()
        ]
    operators = sum(len(b.ops) for b in blocks)
    calls = sum(isinstance(p.graph.exprs[n], relay.Call) for p in plans for n in p.graph.why_opaque)
    return Report(
        operators + calls, ours, stock, tuple(blocks), tuple(refusals), tuple(opaque), seconds,
        rewriting or RewritingLog(),
    )  # fmt: skip


def _block(ecg: ECG, group: Group, name: str) -> BlockReport:
    members = set(group.nodes)
    nodes = [ecg.nodes[n] for n in group.nodes]
    leaving = {v for v in ecg.outputs if v.node in members}
    for n in group.nodes:
        leaving |= {v for u in ecg.users[n] if u not in members for v in ecg.nodes[u].inputs if v.node == n}
    produced = {Value(n.id, i): info for n in nodes for i, info in enumerate(n.outputs)}
    kept = sum(info.nbytes for value, info in produced.items() if value not in leaving)
    return BlockReport(
        name,
        tuple(n.op for n in nodes),
        tuple(group.nodes),
        tuple(n.span for n in nodes),
        group.mapping_type.value,
        kept,
        sum(n.flops for n in nodes),
    )
