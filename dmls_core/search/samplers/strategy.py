"""The base class of a strategy of ``[search] strategy``, found by the entry point ``dmls.samplers``.

The spec's check loads these classes, also in Airflow's environment: import Optuna within the methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from dmls_core import extensions

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler


class SearchStrategy(ABC):
    """Chooses the hyperparameters of the next trial, and prunes trials, by a sampler and a pruner of Optuna.

    Attributes:
        grid: whether each point of the grid is tried once, in an order that the seed shuffles, instead of
            what the sampler suggests.
        requires_range: whether a spec must search a range (``min`` and ``max``).
        portfolio: whether the first trials are those of the champion and of the model's portfolio.
        stateful: whether the sampler stores more in the study than its suggestions. A resumed search then
            asks it again for the finished trials.

    Examples:
        >>> from optuna.samplers import RandomSampler
        >>> from dmls_core.search.samplers.strategy import SearchStrategy, trial_seed
        >>> class UniformStrategy(SearchStrategy):
        ...     def sampler(self, seed, number):
        ...         return RandomSampler(seed=trial_seed(seed, number))
        >>> type(UniformStrategy().sampler(seed=1, number=0)).__name__
        'RandomSampler'
    """

    grid: ClassVar[bool] = False
    requires_range: ClassVar[bool] = False
    portfolio: ClassVar[bool] = False
    stateful: ClassVar[bool] = False

    @abstractmethod
    def sampler(self, seed: int, number: int) -> BaseSampler:
        """Return the sampler of one trial: ``seed`` is the search's, ``number`` the trial's.

        Equal arguments must give equal samplers: the suggestion then depends on the study's trials alone, in
        any worker and after an interruption. ``trial_seed`` makes one seed of both.
        """

    def pruner(self) -> BasePruner:
        """Return the pruner of models other than forests; without an override, no trial is pruned.

        Forests are pruned by their nested search, whatever the strategy.
        """
        from optuna.pruners import NopPruner

        return NopPruner()


def load_strategy(name: str) -> SearchStrategy:
    """Return the strategy that is registered as ``name``.

    Raises:
        PlatformError: no installed package registers it.
    """
    strategy: SearchStrategy = extensions.load("dmls.samplers", name)()
    return strategy


def trial_seed(seed: int, number: int) -> int:
    """Return the seed of one trial's sampler, derived from the search's seed and the trial's number."""
    import numpy as np

    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
