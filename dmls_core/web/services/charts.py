"""Compute the SVG charts: a job's scores over its runs, and a run's trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dmls_core.html.leaderboard import rank_trials

SPARK_WIDTH, SPARK_HEIGHT, SPARK_MARGIN = 88, 22, 3
WIDTH, HEIGHT = 800, 200
LEFT, RIGHT, TOP, BOTTOM = 60, 10, 12, 30


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


@dataclass(frozen=True, slots=True)
class TrialChart:
    """The optimization history of a search.

    Attributes:
        dots: (x, y, label, kind: ``best``, ``pruned`` or empty) of each trial with a score. The score of a
            pruned trial is not comparable, so its dot is below the axis of scores.
        best: points of the line of the best score so far.
        ticks: (y, label) on the axis of scores.
        numbers: (x, label) on the axis of trials.
        label: description for screen readers.
    """

    dots: tuple[tuple[float, float, str, str], ...]
    best: str
    ticks: tuple[tuple[float, str], ...]
    numbers: tuple[tuple[float, str], ...]
    label: str


def trial_chart(trials: Sequence[Mapping[str, Any]], direction: str) -> TrialChart | None:
    """Return the chart of the trials by number; ``None`` without two different, comparable scores."""
    scored = [trial for trial in trials if trial.get("value") is not None]
    ranked = [trial for trial in scored if trial.get("state") == "complete"] or scored
    values = [float(trial["value"]) for trial in ranked]
    if len(set(values)) < 2:
        return None
    low, high = min(values), max(values)
    margin = (high - low) * 0.05
    low, high = low - margin, high + margin
    last = max(int(trial["number"]) for trial in scored) or 1

    def x(number: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * number / last, 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)

    best_trial = rank_trials(scored, direction)[0]
    steps = [(x(number), y(value)) for number, value in _best_so_far(scored, direction)]
    steps.append((x(last), steps[-1][1]))
    ticks = (low + margin, (low + high) / 2, high - margin)
    return TrialChart(
        dots=tuple(
            (
                x(int(trial["number"])),
                y(float(trial["value"])) if trial in ranked else HEIGHT - BOTTOM,
                f"trial {trial['number']}: "
                + (f"{float(trial['value']):.4f}" if trial in ranked else "pruned"),
                "best" if trial is best_trial else "" if trial in ranked else "pruned",
            )
            for trial in scored
        ),
        best=" ".join(f"{px},{py}" for px, py in steps),
        ticks=tuple((y(value), f"{value:.4g}") for value in ticks),
        numbers=tuple((x(number), str(number)) for number in sorted({0, last // 2, last})),
        label=f"Scores of {len(ranked)} trials, from {min(values):.4g} to {max(values):.4g}; the best is "
        f"trial {best_trial['number']}"
        + (f"; {len(scored) - len(ranked)} pruned" if len(scored) > len(ranked) else ""),
    )


def _best_so_far(scored: Sequence[Mapping[str, Any]], direction: str) -> list[tuple[int, float]]:
    """Return the corners of the step line as (trial, best score so far)."""
    better = max if direction == "maximize" else min
    # A pruned trial counts only if no trial is complete.
    complete = any(trial.get("state") == "complete" for trial in scored)
    corners: list[tuple[int, float]] = []
    best: float | None = None
    for trial in scored:
        if complete and trial.get("state") != "complete":
            continue
        number, value = int(trial["number"]), float(trial["value"])
        new = value if best is None else better(best, value)
        if best is not None and new != best:
            corners.append((number, best))
        best = new
        corners.append((number, best))
    return corners
