"""Trials on equal terms, and the importance of hyperparameters among them.

A search that prunes early completes few trials. Pruned trials therefore count too, with the scores that all
trials had after the same amount of training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from dmls_core.spec.definitions import Scalar

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_MIN_TRIALS = 8
"""Completed trials below which hyperparameters have no importance."""

_MAX_TRIALS = 1_000

LENGTH = "n_estimators"
"""The hyperparameter that says how far a trial was trained; not comparable between pruned trials."""


@dataclass(frozen=True, slots=True)
class ComparableTrials:
    """Trials as JSON with ``number``, ``value`` and ``params``.

    Attributes:
        settings: one entry for each configuration; a forest also scores its smaller configurations.
        note: the length at which trials are compared; empty if all are complete.
    """

    trials: Sequence[Mapping[str, Any]]
    settings: Sequence[Mapping[str, Any]]
    note: str = ""


def comparable_trials(
    scored: Sequence[Mapping[str, Any]], direction: str, *, forests: bool
) -> ComparableTrials:
    """Return the scored trials of one model, at least one, on equal terms.

    Forests are comparable at the same number of trees. Boosters are not at the same number of rounds, since
    each learning rate needs a different one.
    """
    complete = [trial for trial in scored if trial.get("state") != "pruned"]
    if len(complete) >= _MIN_TRIALS or len(complete) == len(scored):
        return ComparableTrials(complete, complete)
    sizes = _common_sizes(scored) if forests else []
    if sizes:
        settings = [_settings(trial, sizes[-1]) for trial in scored]
        best = max if direction == "maximize" else min
        trials = [best(each, key=lambda one: one["value"]) for each in settings if each]
        note = f"with {sizes[-1]:,} trees each"
        others = [name for name in scored[0]["surface"]["axes"] if name != LENGTH]
        if others:
            note += f", and each with the {' and '.join(others)} that is best then"
        return ComparableTrials(trials, [one for each in settings for one in each], note)
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
    return ComparableTrials(begun, begun, "by their first intermediate scores, since few are complete")


def _common_sizes(trials: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the numbers of trees at which every trial has scores."""
    axes = [(trial.get("surface") or {}).get("axes", {}) for trial in trials]
    if any(LENGTH not in each or len(each) != len(axes[0]) for each in axes):
        return []
    return sorted(set.intersection(*(set(each[LENGTH]) for each in axes)))


def _settings(trial: Mapping[str, Any], size: int) -> list[Mapping[str, Any]]:
    """Return every configuration that a trial has a score for at a number of trees."""
    axes = trial["surface"]["axes"]
    scores = np.array(trial["surface"]["values"], dtype=np.float64)
    scores = scores.reshape([len(values) for values in axes.values()])
    flat = np.take(scores, axes[LENGTH].index(size), axis=list(axes).index(LENGTH)).ravel().tolist()
    others = {name: values for name, values in axes.items() if name != LENGTH}
    params = _without_length(trial["params"])
    return [
        {
            "number": trial["number"],
            "value": value,
            "params": params | dict(zip(others, setting, strict=True)),
        }
        for setting, value in zip(product(*others.values()), flat, strict=True)
        if math.isfinite(value)
    ]


def _without_length(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != LENGTH}


def hyperparameter_importances(
    trials: Sequence[Mapping[str, Any]], names: Sequence[str], logs: frozenset[str], direction: str
) -> dict[str, float]:
    """Return the importance of each hyperparameter, largest first; empty if there are too few trials.

    PED-ANOVA (Watanabe, Bansal and Hutter, 2023) compares the best trials with all. It takes milliseconds,
    whereas functional ANOVA fits a forest. The trials are complete and have all ``names``; ``logs`` are those
    with a logarithmic search space.
    """
    if len(trials) < _MIN_TRIALS or len({trial["value"] for trial in trials}) < 3:
        return {}
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState, create_trial

    values = {name: [trial["params"][name] for trial in trials] for name in names}
    ranges = {name: _distribution(column, log=name in logs) for name, column in values.items()}
    varied = {name: range_ for name, range_ in ranges.items() if range_ is not None}
    if not varied:
        return {}
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if direction == "maximize" else "minimize")
    study.add_trials(
        create_trial(
            state=TrialState.COMPLETE,
            value=trial["value"],
            params={name: _value(trial["params"][name], varied[name]) for name in varied},
            distributions=varied,
        )
        for trial in trials[:: -(-len(trials) // _MAX_TRIALS)]
    )
    try:
        shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError):
        return {}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _value(value: Scalar, distribution: BaseDistribution) -> Scalar:
    return repr(value) if hasattr(distribution, "choices") else value


def _distribution(values: Sequence[Scalar], *, log: bool) -> BaseDistribution | None:
    """Return a distribution that contains the values; ``None`` if they are all equal."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if len(set(map(repr, values))) < 2:
        return None
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return CategoricalDistribution(sorted(set(map(repr, values))))
    low, high = min(numbers), max(numbers)
    if all(isinstance(number, int) for number in numbers):
        return IntDistribution(int(low), int(high), log=log and low > 0)
    return FloatDistribution(low, high, log=log and low > 0)
