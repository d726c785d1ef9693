"""How far the outputs of two engines lie apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Outputs = Sequence[np.ndarray]


def max_error(ours: Outputs, reference: Outputs) -> float:
    """Largest difference relative to the output's largest value; infinite where shapes differ."""
    worst = 0.0
    for a, b in zip(ours, reference, strict=True):
        if a.shape != b.shape:
            return float("inf")
        if b.size:
            expected = b.astype(np.float64)
            gap = np.abs(a.astype(np.float64) - expected).max()
            worst = max(worst, float(gap / max(np.abs(expected).max(), 1e-30)))
    return worst


def box_error(ours: Outputs, reference: Outputs) -> float:
    """Largest distance of a detection from its counterpart, boxes relative to the largest coordinate.

    Detections are sets: each is matched with the nearest of the same label, in both directions; their
    number must agree.
    """
    first, second = _detections(ours), _detections(reference)
    if len(first[1]) != len(second[1]):
        return float("inf")
    return max(_one_way(first, second), _one_way(second, first))


def _detections(outputs: Outputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes (n, 4), labels (n,) and scores (n,) among a detector's outputs."""
    boxes = next(o for o in outputs if o.ndim == 2 and o.shape[-1] == 4)
    labels = next(o for o in outputs if o.ndim == 1 and o.dtype.kind == "i")
    scores = next(o for o in outputs if o.ndim == 1 and o.dtype.kind == "f")
    return boxes, labels, scores


def _one_way(
    first: tuple[np.ndarray, np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> float:
    worst, scale = 0.0, max(float(np.abs(second[0]).max(initial=0.0)), 1e-30)
    for box, label, score in zip(*first, strict=True):
        same = second[1] == label
        if not same.any():
            return float("inf")
        distance = np.abs(second[0][same] - box).max(axis=1) / scale
        worst = max(worst, float(np.maximum(distance, np.abs(second[2][same] - score)).min()))
    return worst
