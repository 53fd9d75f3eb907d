"""The order of trials, the same on the page and in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Trial = Mapping[str, Any]


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


def _step_score(trial: Trial) -> float | None:
    """Return the score at the last step of a trial, or of what the page keeps of it."""
    steps = trial.get("intermediate_values")
    score: float | None = steps[-1] if steps else trial.get("step_score")
    return score
