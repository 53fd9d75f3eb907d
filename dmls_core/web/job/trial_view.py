"""Trials as people look at them: the best first, and a curve of how the best got better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 800, 200
LEFT, RIGHT, TOP, BOTTOM = 60, 10, 12, 30


@dataclass(frozen=True, slots=True)
class Curve:
    """What the template draws.

    Attributes:
        dots: (x, y, label, whether it is the best) of each trial with a score.
        best: points of the line of the best so far.
        ticks: (y, label) of the axis of scores.
        numbers: (x, label) of the axis of trials.
        label: the same for a screen reader.
    """

    dots: tuple[tuple[float, float, str, bool], ...]
    best: str
    ticks: tuple[tuple[float, str], ...]
    numbers: tuple[tuple[float, str], ...]
    label: str


def rank(trials: Sequence[Mapping[str, Any]], direction: str) -> list[Mapping[str, Any]]:
    """Return the trials, the best first; pruned ones after those that were finished, failed ones last."""
    sign = -1 if direction == "maximize" else 1
    order = {"complete": 0, "pruned": 1}

    def key(trial: Mapping[str, Any]) -> tuple[int, float, int]:
        value = trial.get("value")
        state = order.get(str(trial.get("state")), 2)
        return (state if value is not None else 3, sign * (value or 0.0), int(trial["number"]))

    return sorted(trials, key=key)


def curve(trials: Sequence[Mapping[str, Any]], direction: str) -> Curve | None:
    """Return the curve over the trials by number; ``None`` for less than two with a score."""
    scored = [trial for trial in trials if trial.get("value") is not None]
    if len(scored) < 2:
        return None
    values = [float(trial["value"]) for trial in scored]
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or 0.01
    low, high = low - room, high + room
    last = max(int(trial["number"]) for trial in scored) or 1

    def x(number: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * number / last, 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)

    champion = rank(scored, direction)[0]
    better = max if direction == "maximize" else min
    points, best = [], None
    # What was given up early counts only until something was not.
    finished = any(trial.get("state") == "complete" for trial in scored)
    for trial in scored:
        if trial.get("state") == "complete" or not finished:
            new = float(trial["value"]) if best is None else better(best, float(trial["value"]))
            if best is not None and new != best:
                points.append((x(int(trial["number"])), y(best)))
            best = new
            points.append((x(int(trial["number"])), y(best)))
    points.append((x(last), points[-1][1]))
    middle = (low + high) / 2
    return Curve(
        dots=tuple(
            (
                x(int(trial["number"])),
                y(float(trial["value"])),
                f"trial {trial['number']}: {float(trial['value']):.4f}",
                trial is champion,
            )
            for trial in scored
        ),
        best=" ".join(f"{px},{py}" for px, py in points),
        ticks=tuple((y(value), f"{value:.4g}") for value in (low + room, middle, high - room)),
        numbers=tuple((x(number), str(number)) for number in sorted({0, last // 2, last})),
        label=f"Scores of {len(scored)} trials, from {min(values):.4g} to {max(values):.4g}; the best is "
        f"trial {champion['number']}",
    )
