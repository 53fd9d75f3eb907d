"""The search space of one model on one engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dmls_core.spec.definitions import Scalar
from dmls_core.spec.hyperparameters import Hyperparameter, fixed


@dataclass(frozen=True, slots=True)
class Space:
    """Hyperparameters that are searched, and those that are fixed, by the spec's names."""

    searched: dict[str, Hyperparameter]
    fixed: dict[str, Scalar]

    @classmethod
    def of(cls, hyperparameters: Mapping[str, Hyperparameter]) -> Space:
        """Tell the two apart; ``hyperparameters`` is what the engine really searches."""
        single = fixed(hyperparameters)
        return cls({k: v for k, v in hyperparameters.items() if k not in single}, single)
