"""Where a Relay expression came from, as text."""

from __future__ import annotations

import tvm

from .node_fields import field_of, items


def span_of(name: str) -> tvm.ir.Span:
    """A span whose source has a name and no lines: a node of a model, or a rule."""
    return tvm.ir.Span(tvm.ir.SourceName(name), 0, 0, 0, 0)


def span_text(span: tvm.ir.Span | tvm.ir.SequentialSpan | None) -> str:
    """Name of the source node that ``span`` points to; several are joined by ``+``; empty when unknown."""
    if span is None:
        return ""
    parts = items(field_of(span, "spans")) if isinstance(span, tvm.ir.SequentialSpan) else [span]
    return "+".join(dict.fromkeys(field_of(field_of(p, "source_name"), "name") for p in parts))
