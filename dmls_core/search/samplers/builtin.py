"""The strategies that DMLS ships."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmls_core.search.samplers.strategy import SearchStrategy, trial_seed

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler


def _successive_halving() -> BasePruner:
    """Return Optuna's successive halving, whose rungs are the steps of a trial."""
    from optuna.pruners import SuccessiveHalvingPruner

    from dmls_core.search.forest.halving import REDUCTION

    return SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)


class TPE(SearchStrategy):
    """Optuna's tree-structured Parzen estimator."""

    def sampler(self, seed: int, number: int) -> BaseSampler:
        """Return the sampler of one trial."""
        from optuna.samplers import TPESampler

        # With one worker no other trial runs, and the constant liar changes nothing.
        return TPESampler(seed=trial_seed(seed, number), constant_liar=True)

    def pruner(self) -> BasePruner:
        """Return successive halving."""
        return _successive_halving()


class Auto(TPE):
    """The best strategy for the model: TPE, after the model's portfolio."""

    portfolio = True


class Random(SearchStrategy):
    """Random search with successive halving: ``random`` and ``halving``."""

    def sampler(self, seed: int, number: int) -> BaseSampler:
        """Return the sampler of one trial."""
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=trial_seed(seed, number))

    def pruner(self) -> BasePruner:
        """Return successive halving."""
        return _successive_halving()


class Grid(SearchStrategy):
    """Every point of the grid, scored in full."""

    grid = True

    def sampler(self, seed: int, number: int) -> BaseSampler:
        """Return a sampler that is never asked: each trial has its values from the grid."""
        from optuna.samplers import RandomSampler

        return RandomSampler(seed=trial_seed(seed, number))


class CmaEs(SearchStrategy):
    """Optuna's covariance matrix adaptation, which learns from complete trials only."""

    requires_range = True
    stateful = True

    def sampler(self, seed: int, number: int) -> BaseSampler:
        """Return the sampler of one trial."""
        from optuna.samplers import CmaEsSampler

        return CmaEsSampler(seed=trial_seed(seed, number), warn_independent_sampling=False)
