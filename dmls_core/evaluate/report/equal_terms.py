"""Trials that were taken to different lengths, on equal terms.

A search that drops losers early takes one trial, or few, to the end. What the hyperparameters matter is told
by all of them, as they stood after what every one has gone through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from dmls_core.evaluate.report.importance import FEWEST

LENGTH = "n_estimators"
"""Says how far a trial was taken: no setting to compare where these were taken to different lengths."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Trials to compare, each as a trial's JSON has it: ``number``, ``value``, ``params``.

    Attributes:
        trials: one for each trial.
        settings: one for each setting that was scored: more than trials where one model answers for many.
        note: at which length they are compared; empty where each was taken to its end.
    """

    trials: Sequence[Mapping[str, Any]]
    settings: Sequence[Mapping[str, Any]]
    note: str = ""


def on_equal_terms(scored: Sequence[Mapping[str, Any]], direction: str, *, forests: bool) -> Compared:
    """Compare trials of one model.

    Args:
        scored: those that have a score, at least one.
        direction: ``maximize`` or ``minimize``.
        forests: whether the model is a forest: with as many trees, settings compare. Boosters of as many
            rounds do not, since each learning rate needs others.
    """
    finished = [trial for trial in scored if trial.get("state") != "pruned"]
    if len(finished) >= FEWEST or len(finished) == len(scored):
        return Compared(finished, finished)
    sizes = _common_sizes(scored) if forests else []
    if sizes:
        settings = [_settings(trial, sizes[-1]) for trial in scored]
        best = max if direction == "maximize" else min
        trials = [best(each, key=lambda one: one["value"]) for each in settings if each]
        return Compared(
            trials, [one for each in settings for one in each], f"each with {sizes[-1]:,} trees only"
        )
    read = any(LENGTH in (trial.get("surface") or {}).get("axes", {}) for trial in scored)
    begun = [
        {
            "number": trial["number"],
            "value": trial["intermediate_values"][0],
            "params": _without_length(trial["params"]) if read else trial["params"],
        }
        for trial in scored
        if trial.get("intermediate_values")
    ]
    return Compared(begun, begun, "each as it stood when the first were pruned")


def _common_sizes(trials: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the numbers of trees at which every trial has the score of each of its other settings."""
    axes = [(trial.get("surface") or {}).get("axes", {}) for trial in trials]
    if any(LENGTH not in each or len(each) != len(axes[0]) for each in axes):
        return []
    return sorted(set.intersection(*(set(each[LENGTH]) for each in axes)))


def _settings(trial: Mapping[str, Any], size: int) -> list[Mapping[str, Any]]:
    """Return every setting that a trial has a score for at a size."""
    axes = trial["surface"]["axes"]
    scores = np.array(trial["surface"]["values"], dtype=np.float64)
    scores = scores.reshape([len(values) for values in axes.values()])
    flat = np.take(scores, axes[LENGTH].index(size), axis=list(axes).index(LENGTH)).ravel().tolist()
    others = {name: values for name, values in axes.items() if name != LENGTH}
    own = _without_length(trial["params"])
    return [
        {"number": trial["number"], "value": value, "params": own | dict(zip(others, setting, strict=True))}
        for setting, value in zip(product(*others.values()), flat, strict=True)
        if math.isfinite(value)
    ]


def _without_length(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != LENGTH}
