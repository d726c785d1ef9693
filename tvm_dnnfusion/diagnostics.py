"""TVM's diagnostics as values; by default it prints them, over several lines, on the error output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import tvm
from tvm.ir import diagnostics
from tvm.ir.diagnostics import DiagnosticContext, DiagnosticLevel

# The parser shows a token with the addresses of its parts; only its text means something to a reader.
TOKEN = re.compile(r"\s*Token\(.*data=(.*)\)")

# The global function that override_renderer registers.
RENDERER = "diagnostics.OverrideRenderer"


@contextmanager
def collect_diagnostics() -> Iterator[list[str]]:
    """Collect the errors that TVM's parser and type inference report inside the ``with`` block.

    Yields
    ------
    list of str
        One ``line L, column C: message`` per error, in the order of their report.
    """
    messages: list[str] = []

    def render(context: DiagnosticContext) -> None:
        for diagnostic in context.diagnostics:
            if diagnostic.level <= DiagnosticLevel.ERROR:
                text = TOKEN.sub(r" \1", str(diagnostic.message)).replace("(nullptr)", "the end of the text")
                span = diagnostic.span
                where = f"line {span.line}, column {span.column}: " if span and span.line > 0 else ""
                messages.append(where + " ".join(text.split()))

    outer = tvm.get_global_func(RENDERER, allow_missing=True)
    diagnostics.override_renderer(render)
    try:
        yield messages
    finally:
        if outer is None:
            diagnostics.override_renderer(None)
        else:
            tvm.register_func(RENDERER, outer, override=True)
