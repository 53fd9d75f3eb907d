"""Which hyperparameters mattered, by Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dmls_core.spec.definitions import Scalar

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

FEWEST = 8
"""Finished trials below which nothing can be said."""

MOST = 1_000
"""Trials looked at, at most."""


def hyperparameter_importances(
    trials: Sequence[Mapping[str, Any]], names: Sequence[str], logs: frozenset[str], direction: str
) -> dict[str, float]:
    """Return the share of each hyperparameter, the largest first; empty where the trials tell nothing.

    PED-ANOVA (Watanabe, Bansal and Hutter, 2023) compares the best trials with all. It costs milliseconds,
    where functional ANOVA fits a forest.

    Args:
        trials: finished trials' JSON.
        names: the hyperparameters, which every trial has.
        logs: those that are searched by their logarithm.
        direction: ``maximize`` or ``minimize``.
    """
    if len(trials) < FEWEST or len({trial["value"] for trial in trials}) < 3:
        return {}
    import optuna
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState, create_trial

    values = {name: [trial["params"][name] for trial in trials] for name in names}
    ranges = {name: _distribution(found, log=name in logs) for name, found in values.items()}
    # Of a single value nothing can be said.
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
        for trial in trials[:: -(-len(trials) // MOST)]
    )
    try:
        shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    except (ValueError, RuntimeError):
        return {}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _value(value: Scalar, distribution: BaseDistribution) -> Scalar:
    return repr(value) if hasattr(distribution, "choices") else value


def _distribution(values: Sequence[Scalar], *, log: bool) -> BaseDistribution | None:
    """Return what the values may have been drawn from; ``None`` if they are all the same."""
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
