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
        self._labels = {name: _labels(wanted) for name, wanted in space.searched.items()}
        self.of = {name: _distribution(wanted, self._labels[name]) for name, wanted in space.searched.items()}

    def decode(self, params: Mapping[str, Any]) -> dict[str, Scalar]:
        """Return Optuna's parameters as values of the spec."""
        return {name: self._labels[name].get(str(value), value) for name, value in params.items()}

    def encode(self, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the searched hyperparameters as Optuna's parameters."""
        return {name: repr(params[name]) if self._labels[name] else params[name] for name in self.of}


def _labels(wanted: Hyperparameter) -> dict[str, Scalar]:
    if not isinstance(wanted, Choice) or len(set(wanted.values)) == len(wanted.values):
        return {}
    return {repr(value): value for value in wanted.values}


def _distribution(wanted: Hyperparameter, labels: dict[str, Scalar]) -> BaseDistribution:
    if isinstance(wanted, Choice):
        return CategoricalDistribution(tuple(labels) or wanted.values)
    if wanted.log:
        kind = IntDistribution if wanted.integer else FloatDistribution
        return kind(wanted.min, wanted.max, log=True)
    if wanted.size is None:
        return FloatDistribution(wanted.min, wanted.max)
    step = wanted.step or 1
    high = wanted.min + step * (wanted.size - 1)
    return (
        IntDistribution(wanted.min, high, step=step)
        if wanted.integer
        else FloatDistribution(wanted.min, high, step=step)
    )
