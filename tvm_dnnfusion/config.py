"""Options of the whole way, one frozen object given to constructors."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import OptionError

PROFITABILITY = ("static", "measured")
NUMERICS = ("strict", "relaxed", "fast")


@dataclass(frozen=True)
class Options:
    """What may be chosen.

    Attributes
    ----------
    profitability
        Who decides the yellow cells of Table 3: ``"static"``, from shapes, or ``"measured"``, from a
        database of latencies that is filled on demand.
    database
        SQLite file of measured latencies; used only with ``"measured"``.
    max_operators
        Operators per block.
    max_arguments
        Parameters of a kernel; None takes the target's limit, 128 where it has none.
    join_bytes
        Groups are joined past the paper's Table 3 while at most so many bytes pass between them, a tenth of
        an L1 cache; 0 keeps the paper's plan.
    rewrite
        Whether terms are replaced by cheaper ones that are mathematically equal. Off unless asked for, until
        what it saves on whole networks is measured.
    numerics
        What that may change of floating-point results. ``"strict"``: nothing; ``"relaxed"``: rounding, but
        finite values stay finite; ``"fast"``: it may assume that no value is infinite or NaN.
    alter_layout
        Whether convolutions and dense layers get the layout their kernels favour before grouping. Ansor
        chooses layouts of its own: switch it off for modules that it will tune.
    verify
        Check types after each phase and each plan against the definition of legality. On when the
        environment variable ``TVM_DNNFUSION_VERIFY`` is set.
    dump
        Folder for the module after each phase, numbered, as Relay text; None writes none. Defaults to the
        environment variable ``TVM_DNNFUSION_DUMP``.
    """

    profitability: str = "static"
    database: Path | None = None
    max_operators: int = 128
    max_arguments: int | None = None
    join_bytes: int = 4096
    rewrite: bool = False
    numerics: str = "relaxed"
    alter_layout: bool = True
    verify: bool = dataclasses.field(default_factory=lambda: bool(os.environ.get("TVM_DNNFUSION_VERIFY")))
    dump: Path | None = dataclasses.field(default_factory=lambda: _dump_from_environment())

    def __post_init__(self) -> None:
        if self.profitability not in PROFITABILITY:
            raise OptionError(
                f"profitability is {self.profitability!r}; accepted are {' and '.join(PROFITABILITY)}"
            )
        if self.numerics not in NUMERICS:
            raise OptionError(f"numerics is {self.numerics!r}; accepted are {', '.join(NUMERICS)}")
        for name in ("max_operators", "max_arguments"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}; at least 1 is accepted")
        if self.profitability == "measured" and self.database is None:
            raise OptionError("profitability='measured' needs database=PATH, a file for measured latencies")

    def to_json(self) -> dict[str, Any]:
        """Plain values, for manifests."""
        return {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(self).items()}


def _dump_from_environment() -> Path | None:
    folder = os.environ.get("TVM_DNNFUSION_DUMP")
    return Path(folder) if folder else None
