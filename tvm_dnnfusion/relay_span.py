"""Where a Relay expression came from, as text."""

from __future__ import annotations

import tvm


def span_text(span: tvm.ir.Span | tvm.ir.SequentialSpan | None) -> str:
    """Name of the source node that ``span`` points to; several are joined by ``+``; empty when unknown."""
    if span is None:
        return ""
    parts = span.spans if isinstance(span, tvm.ir.SequentialSpan) else [span]
    return "+".join(dict.fromkeys(p.source_name.name for p in parts))
