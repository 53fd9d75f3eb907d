"""A small line over a job's runs, as points of an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN = 88, 22, 3


class Sparkline(NamedTuple):
    """What the template draws.

    Attributes:
        points: as SVG's ``polyline`` takes them; empty for less than two scores.
        last: the last point.
        label: the same for a screen reader.
    """

    points: str
    last: tuple[float, float]
    label: str


def sparkline(scores: Sequence[float]) -> Sparkline | None:
    """Return the line through ``scores``, the oldest first; ``None`` for less than two."""
    if len(scores) < 2:
        return None
    low, high = min(scores), max(scores)
    step = (WIDTH - 2 * MARGIN) / (len(scores) - 1)
    height = HEIGHT - 2 * MARGIN
    points = [
        (
            round(MARGIN + index * step, 1),
            round(MARGIN + height * (1 - (score - low) / (high - low) if high > low else 0.5), 1),
        )
        for index, score in enumerate(scores)
    ]
    label = f"{len(scores)} runs, from {scores[0]:.4g} to {scores[-1]:.4g}, between {low:.4g} and {high:.4g}"
    return Sparkline(" ".join(f"{x},{y}" for x, y in points), points[-1], label)
