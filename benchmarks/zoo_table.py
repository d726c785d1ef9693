"""RESULTS.md from the measured rows."""

from __future__ import annotations

import math
from typing import Any

# Kernels that the paper reports (Table 5, column DNNF).
PAPER = {
    "efficientnet_b0": 97,
    "vgg16": 17,
    "mobilenet_v1_ssd": 71,
    "yolov4": 135,
    "c3d": 16,
    "s3d": 98,
    "unet": 82,
    "faster_rcnn": 942,
    "mask_rcnn": 981,
    "tinybert": 74,
    "distilbert": 109,
    "albert_base": 225,
    "bert_base": 216,
    "mobilebert": 510,
    "gpt2": 254,
}
COLUMNS = (
    "model", "operators", "kernels", "stock", "paper", "MB", "stock", "compile CPU s", "stock", "passes s",
    "import s", "ms", "stock", "onnxruntime", "stock / ours", "onnxruntime / ours", "error",
)  # fmt: skip

Row = dict[str, Any]


def passes_seconds(row: Row) -> float:
    """Wall seconds of our passes, without the build behind them."""
    return sum(row["pass_seconds"].values())


def summary(row: Row) -> str:
    """One line."""
    return (
        f"kernels {row['kernels']} (stock {row['stock']['kernels']}), {row['ours_ms']:.2f} ms "
        f"(stock {_cell(row, 'stock_ms', '.2f')}, onnxruntime {row['onnxruntime_ms']:.2f}), "
        f"error {row['errors']['ours']:.1e}"
    )


def _cell(row: Row, key: str, format_: str) -> str:
    """A figure, or a dash where stock TVM was given up."""
    return format(row[key], format_) if key in row else "-"


def results_table(rows: list[Row]) -> str:
    """The whole file."""
    if not rows:
        return "# Results\n\nNothing measured yet: run `python benchmarks/zoo.py`.\n"
    head = (
        "# Results\n\n"
        f"{len(rows)} networks on {rows[0]['machine']}, {rows[0]['threads']} threads, float32, batch 1, "
        f"untuned, target `{rows[0]['target']}`. Made by `python benchmarks/zoo.py`, which repeats it.\n\n"
        "Times are medians of interleaved runs in one process per model. *MB* are bytes that pass between "
        "kernels. *Compile* leaves importing out and has our passes in it; it is processor time, "
        "*passes* and *import* are wall time. *Error* is the largest difference from ONNX Runtime "
        "relative to the output's largest value; for the two R-CNNs the largest distance between "
        "matched boxes and scores. *Paper* is DNNFusion's own number of fused layers (PLDI 2021, "
        "Table 5).\n\n"
    )
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS), *map(_line, rows)]
    return head + "\n".join(lines) + "\n\n" + _closing(rows)


def short_table(rows: list[Row]) -> str:
    """Kernels and milliseconds alone, for the README."""
    lines = ["| network | kernels | stock | ms | stock | ONNX Runtime |", "|---|---|---|---|---|---|"]
    for row in rows:
        times = f"{row['ours_ms']:.1f} | {_cell(row, 'stock_ms', '.1f')} | {row['onnxruntime_ms']:.1f}"
        lines.append(f"| {row['model']} | {row['kernels']} | {row['stock']['kernels']} | {times} |")
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    stock = row["stock"]
    cells = [
        row["model"],
        str(row["operators"] + row["opaque"]),
        str(row["kernels"]),
        str(stock["kernels"]),
        str(PAPER.get(row["model"], "")),
        f"{row['intermediate_bytes'] / 1e6:.1f}",
        f"{stock['intermediate_bytes'] / 1e6:.1f}",
        f"{row['cpu_seconds']:.0f}",
        _cell(stock, "cpu_seconds", ".0f"),
        f"{passes_seconds(row):.1f}",
        f"{row['import_seconds']:.1f}",
        f"{row['ours_ms']:.2f}",
        _cell(row, "stock_ms", ".2f"),
        f"{row['onnxruntime_ms']:.2f}",
        f"{row['stock_ms'] / row['ours_ms']:.2f}" if "stock_ms" in row else "-",
        f"{row['onnxruntime_ms'] / row['ours_ms']:.2f}",
        f"{row['errors']['ours']:.1e}",
    ]
    return "| " + " | ".join(cells) + " |"


def _geometric(values: list[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values))


def _closing(rows: list[Row]) -> str:
    built = [r for r in rows if "stock_ms" in r]
    given_up = ", ".join(r["model"] for r in rows if "stock_ms" not in r) or "none"
    more = ", ".join(r["model"] for r in rows if r["kernels"] > r["stock"]["kernels"]) or "none"
    slower = [r for r in built if r["ours_ms"] > 1.05 * r["stock_ms"]]
    named = ", ".join(f"{r['model']} ({r['ours_ms'] / r['stock_ms']:.2f} times)" for r in slower) or "none"
    stock = _geometric([r["stock_ms"] / r["ours_ms"] for r in built])
    peer = _geometric([r["onnxruntime_ms"] / r["ours_ms"] for r in rows])
    moved = _geometric([r["intermediate_bytes"] / r["stock"]["intermediate_bytes"] for r in rows])
    operators = sum(r["operators"] + r["opaque"] for r in rows)
    return (
        f"Geometric means: {stock:.2f} times as fast as stock TVM, {peer:.2f} times as fast as ONNX Runtime, "
        f"{moved:.2f} of stock's bytes between kernels. Our passes took "
        f"{sum(map(passes_seconds, rows)) / operators * 1000:.2f} s per 1,000 operators.\n\n"
        f"Slower than stock by more than 5 %: {named}. More kernels than stock: {more}. "
        f"Stock TVM given up after 25 minutes of compiling: {given_up}.\n"
    )
