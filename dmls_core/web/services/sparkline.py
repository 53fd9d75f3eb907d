"""The line of a job's scores over its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SPARK_WIDTH, SPARK_HEIGHT, SPARK_MARGIN = 88, 22, 3


class Sparkline(NamedTuple):
    """A line over a job's runs: points of an SVG ``polyline``, and a label for screen readers."""

    points: str
    last: tuple[float, float]
    label: str


def sparkline(scores: Sequence[float]) -> Sparkline | None:
    """Return the line through ``scores``, oldest first; ``None`` for fewer than two."""
    if len(scores) < 2:
        return None
    low, high = min(scores), max(scores)
    step = (SPARK_WIDTH - 2 * SPARK_MARGIN) / (len(scores) - 1)
    height = SPARK_HEIGHT - 2 * SPARK_MARGIN
    points = [
        (
            round(SPARK_MARGIN + index * step, 1),
            round(SPARK_MARGIN + height * (1 - (score - low) / (high - low) if high > low else 0.5), 1),
        )
        for index, score in enumerate(scores)
    ]
    label = f"{len(scores)} runs, from {scores[0]:.4g} to {scores[-1]:.4g}, between {low:.4g} and {high:.4g}"
    return Sparkline(" ".join(f"{x},{y}" for x, y in points), points[-1], label)
