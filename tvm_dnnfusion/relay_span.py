"""Where a Relay expression came from, as text."""

from __future__ import annotations

from tvm import relay


def span_text(span: relay.Span | None) -> str:
    """Name of the source node that ``span`` points to; several are joined by ``+``; empty when unknown."""
    if span is None:
        return ""
    parts = list(getattr(span, "spans", [])) or [span]
    names = dict.fromkeys(p.source_name.name for p in parts if getattr(p, "source_name", None) is not None)
    return "+".join(names)
