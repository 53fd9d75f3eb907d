"""Optuna's distributions of a search space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from dmls_core.search.task import Space
from dmls_core.spec.definitions import Choice, Hyperparameter, Scalar


class Distributions:
    """Optuna's distributions of a space, and the translation of values.

    Optuna cannot distinguish choices that are equal in Python (1, 1.0, true): ``repr`` replaces these.
    """

    def __init__(self, space: Space) -> None:
        self._labels = {name: _labels(hyperparameter) for name, hyperparameter in space.searched.items()}
        self.of = {
            name: _distribution(hyperparameter, self._labels[name])
            for name, hyperparameter in space.searched.items()
        }

    def decode(self, params: Mapping[str, Any]) -> dict[str, Scalar]:
        """Return Optuna's parameters as values of the spec."""
        return {name: self._labels[name].get(str(value), value) for name, value in params.items()}

    def encode(self, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the searched hyperparameters as Optuna's parameters."""
        return {name: repr(params[name]) if self._labels[name] else params[name] for name in self.of}


def _labels(hyperparameter: Hyperparameter) -> dict[str, Scalar]:
    if not isinstance(hyperparameter, Choice) or len(set(hyperparameter.values)) == len(
        hyperparameter.values
    ):
        return {}
    return {repr(value): value for value in hyperparameter.values}


def _distribution(hyperparameter: Hyperparameter, labels: dict[str, Scalar]) -> BaseDistribution:
    if isinstance(hyperparameter, Choice):
        return CategoricalDistribution(tuple(labels) or hyperparameter.values)
    if hyperparameter.log:
        distribution = IntDistribution if hyperparameter.integer else FloatDistribution
        return distribution(hyperparameter.min, hyperparameter.max, log=True)
    if hyperparameter.size is None:
        return FloatDistribution(hyperparameter.min, hyperparameter.max)
    step = hyperparameter.step or 1
    high = hyperparameter.min + step * (hyperparameter.size - 1)
    return (
        IntDistribution(hyperparameter.min, high, step=step)
        if hyperparameter.integer
        else FloatDistribution(hyperparameter.min, high, step=step)
    )
