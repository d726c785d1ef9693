"""Block schedules: one declaration each, tried in order; the first that claims a block schedules it.

A schedule takes a :class:`~tvm_dnnfusion.block_lowering.LoweredBlock` and returns a TE schedule, or
None when the block is not its kind. It must not fail, but if it does the next one is tried and the
failure is logged: a block always gets a correct schedule, in the end the default one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import te

from tvm_dnnfusion.errors import RegistrationError

logger = logging.getLogger("tvm_dnnfusion")

ScheduleFunction = Callable[[Any], "te.Schedule | None"]


@dataclass(frozen=True)
class BlockSchedule:
    """A registered schedule.

    Attributes
    ----------
    name
        Unique; shown by reports.
    function
        ``LoweredBlock -> te.Schedule | None``.
    targets
        Target kinds or keys it is written for, such as ``llvm`` or ``cpu``.
    priority
        Higher is tried first; the general ones have 0 (a fallback, which claims every block) and 10.
    anchors
        Operators that it schedules better than TVM does: a group of one of them alone becomes a block.
    """

    name: str
    function: ScheduleFunction
    targets: tuple[str, ...]
    priority: int = field(default=50)
    anchors: tuple[str, ...] = ()


_REGISTRY: dict[str, BlockSchedule] = {}


def block_schedule(
    name: str,
    targets: Sequence[str],
    priority: int = 50,
    override: bool = False,
    anchors: Sequence[str] = (),
) -> Callable[[ScheduleFunction], ScheduleFunction]:
    """Register the decorated function as a block schedule.

    Raises
    ------
    RegistrationError
        ``name`` is taken and ``override`` is not given.
    """

    def register(function: ScheduleFunction) -> ScheduleFunction:
        if name in _REGISTRY and not override:
            raise RegistrationError(
                f"a block schedule named {name!r} is registered already; pass override=True to replace it"
            )
        _REGISTRY[name] = BlockSchedule(name, function, tuple(targets), priority, tuple(anchors))
        return function

    return register


def registered_schedules() -> tuple[BlockSchedule, ...]:
    """All schedules in the order in which they are tried."""
    return tuple(sorted(_REGISTRY.values(), key=lambda s: (-s.priority, s.name)))


def _serves(schedule: BlockSchedule, target: tvm.target.Target) -> bool:
    return target.kind.name in schedule.targets or any(key in schedule.targets for key in target.keys)


def has_fallback(target: tvm.target.Target) -> bool:
    """True when a schedule of priority 0, which claims any block, is registered for ``target``."""
    return any(s.priority == 0 and _serves(s, target) for s in _REGISTRY.values())


def anchors_for(target: tvm.target.Target) -> frozenset[str]:
    """Operators that deserve a block of their own on ``target``, from the declarations alone."""
    return frozenset(name for s in _REGISTRY.values() if _serves(s, target) for name in s.anchors)


def claim(block: Any) -> tuple[str, te.Schedule]:
    """Name and schedule of the first registered schedule that claims ``block``.

    Raises
    ------
    LookupError
        No schedule is registered for the block's target.
    """
    target = block.target
    for candidate in registered_schedules():
        if not _serves(candidate, target):
            continue
        try:
            schedule = candidate.function(block)
        except Exception as error:
            operators = ", ".join(o.name for o in block.operators)
            logger.warning("block schedule %s failed on [%s]: %s", candidate.name, operators, error)
            continue
        if schedule is not None:
            return candidate.name, schedule
    raise LookupError(f"no block schedule for target {target}; known kinds: {_known_kinds()}")


def _known_kinds() -> str:
    return ", ".join(sorted({t for s in _REGISTRY.values() for t in s.targets}))


def schedule_block(block: Any) -> te.Schedule:
    """The TE schedule of a lowered block."""
    return claim(block)[1]
