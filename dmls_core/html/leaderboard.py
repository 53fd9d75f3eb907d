"""The order and the history of trials, the same on the page and in the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dmls_core.html.formats import brief, shorten

Trial = Mapping[str, Any]

MAX_POINTS = 2_000
"""Complete trials in a history, and pruned ones, at most."""

_MAX_SETTINGS = 6
"""Hyperparameters in a tooltip at most."""

_SETTING_LENGTH = 60
"""Characters of a hyperparameter in a tooltip at most."""


def rank_trials(trials: Sequence[Trial], direction: str) -> list[Trial]:
    """Return the trials on equal terms: complete ones by score, then pruned ones, then failed ones.

    Pruned trials with less training rank below those with more. Among trials that were pruned at the same
    step, the score at that step decides.
    """
    sign = -1 if direction == "maximize" else 1
    order = {"complete": 0, "pruned": 1}

    def key(trial: Trial) -> tuple[int, int, float, int]:
        value, number = trial.get("value"), int(trial["number"])
        state = order.get(trial.get("state") or "complete", 2) if value is not None else 3
        if state == 1 and (at_step := _step_score(trial)) is not None:
            return state, -(trial.get("steps") or 0), sign * at_step, number
        return state, 0, sign * (value or 0.0), number

    return sorted(trials, key=key)


def merge_repeats(trials: Sequence[Trial]) -> list[Trial]:
    """Return one trial for each configuration.

    A trial that repeats an earlier one has its scores without training. The earlier one gets ``repeats``, the
    numbers of those trials.
    """
    numbers = {trial["number"] for trial in trials if trial.get("same_as") is None}
    repeats: dict[int, list[int]] = {number: [] for number in numbers}
    for trial in trials:
        if trial.get("same_as") in numbers:
            repeats[trial["same_as"]].append(trial["number"])
    return [
        {**trial, "repeats": repeats.get(trial["number"], [])}
        for trial in trials
        if trial.get("same_as") not in numbers
    ]


def _step_score(trial: Trial) -> float | None:
    """Return the score at the last step of a trial, or of what the page keeps of it."""
    steps = trial.get("intermediate_values")
    score: float | None = steps[-1] if steps else trial.get("step_score")
    return score


def score_history(trials: Sequence[Trial], metric: str, direction: str) -> dict[str, Any] | None:
    """Return the values of the chart ``history``; ``None`` without two trials that have a score.

    The score of a pruned trial is not comparable: only complete ones can be the best so far.
    """
    scored = [trial for trial in trials if trial.get("value") is not None]
    if len(scored) < 2:
        return None
    complete = [trial for trial in scored if trial.get("state") != "pruned"]
    pruned = [trial for trial in scored if trial.get("state") == "pruned"]
    best: list[float] = []
    better = max if direction == "maximize" else min
    for trial in complete:
        best.append(better(best[-1], trial["value"]) if best else trial["value"])
    step = max(1, math.ceil(len(complete) / MAX_POINTS))
    drawn = [at for at in range(len(complete)) if at % step == 0 or (at and best[at] != best[at - 1])]
    return {
        "metric": metric,
        "complete": [_point(complete[at]) for at in drawn],
        "pruned": list(map(_point, pruned[:: max(1, math.ceil(len(pruned) / MAX_POINTS))])),
        "best": [[complete[at]["number"], best[at]] for at in drawn],
    }


def _point(trial: Trial) -> tuple[int, float, list[str]]:
    """Return a trial's number, its score, and its hyperparameters as the lines of a tooltip."""
    settings = list((trial.get("params") or {}).items())[:_MAX_SETTINGS]
    lines = [f"{name} {brief(value) if isinstance(value, float) else value}" for name, value in settings]
    return trial["number"], trial["value"], [shorten(line, _SETTING_LENGTH) for line in lines]
