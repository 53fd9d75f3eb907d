"""Search strategy for DMLS: a Sobol sequence, whose points cover the space more evenly than random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmls_core.search.samplers.strategy import SearchStrategy, trial_seed

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler


class QMC(SearchStrategy):
    """Optuna's quasi-Monte Carlo sampler, and its median pruner."""

    stateful = True  # Optuna counts the points of the sequence in the study.

    def sampler(self, seed: int, number: int) -> BaseSampler:
        from optuna.samplers import QMCSampler, RandomSampler

        # All trials are points of one sequence, so its seed is the search's.
        return QMCSampler(
            scramble=True,
            seed=seed,
            independent_sampler=RandomSampler(seed=trial_seed(seed, number)),
            warn_independent_sampling=False,
        )

    def pruner(self) -> BasePruner:
        from optuna.pruners import MedianPruner

        return MedianPruner(n_startup_trials=5)
