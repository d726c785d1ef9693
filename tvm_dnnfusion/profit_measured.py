"""Profit of the yellow cells by measurement (section 4.3, step 2.3), remembered in a database."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from .canonical_form import canonical_form
from .ecg import ECG
from .errors import MeasureError
from .latency_db import LatencyDatabase
from .profitability import Profitability, StaticProfitability, Verdict

Measure = Callable[[ECG, tuple[int, ...]], float]
"""Latency in milliseconds of one kernel that computes the given nodes; raises MeasureError."""


@dataclass
class MeasuredProfitability:
    """Fuses a yellow pair unless the fused kernel is slower than its two parts one after the other.

    Attributes
    ----------
    database
        Where latencies are looked up, and stored unless it is read-only.
    measure
        Builds and times a block that the database lacks.
    target, device
        Parts of the key: the target string, and a name for the machine.
    fallback
        Asked when a kernel cannot be measured; the verdict's reason says so.
    """

    database: LatencyDatabase
    measure: Measure
    target: str
    device: str
    fallback: Profitability = field(default_factory=StaticProfitability)
    _failed: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def profitable(self, ecg: ECG, block: tuple[int, ...], candidate: int) -> Verdict:
        """Compare the fused kernel with the block and the candidate apart.

        Raises
        ------
        DatabaseError
            If the database cannot be read or written.
        """
        parts = tuple(sorted(block)), (candidate,)
        try:
            fused = self._milliseconds(ecg, tuple(sorted((*block, candidate))))
            apart = sum(self._milliseconds(ecg, part) for part in parts)
        except MeasureError as error:
            verdict = self.fallback.profitable(ecg, block, candidate)
            return Verdict(verdict.profitable, f"{verdict.reason} (estimated, not measured: {error})")
        reason = f"the fused kernel takes {fused:.4g} ms and its parts {apart:.4g} ms"
        return Verdict(fused <= apart, reason, fused, apart)

    def _milliseconds(self, ecg: ECG, nodes: tuple[int, ...]) -> float:
        form = canonical_form(ecg, nodes)
        known = self.database.find(self.target, self.device, form)
        if known is not None:
            return known
        if form in self._failed:
            raise MeasureError(self._failed[form])
        try:
            milliseconds = self.measure(ecg, nodes)
        except MeasureError as error:
            self._failed[form] = str(error)
            raise
        if not 0.0 <= milliseconds < math.inf:
            raise MeasureError(f"a kernel cannot take {milliseconds} ms")
        if not self.database.read_only:
            self.database.store(self.target, self.device, form, milliseconds)
        return milliseconds
