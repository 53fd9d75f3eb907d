"""A forest that grows tree by tree, and what it answers under every cut."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray

from dmls_core.models.engines import effective
from dmls_core.models.engines.base import refusal
from dmls_core.models.engines.cpu.forests import unfitted
from dmls_core.search.interface import Problem
from dmls_core.search.nested.axes import Layout
from dmls_core.search.nested.ground import Ground
from dmls_core.search.nested.walk import Nodes
from dmls_core.spec.definitions import Scalar

NODE_BYTES = 64
"""What scikit-learn keeps of a node besides its value."""

CHUNK = 16_384
"""Rows that are walked at once."""


class GrownForest:
    """One forest on one ground. Grown in steps, it is the forest that one fit would have grown.

    Attributes:
        forest: scikit-learn's forest; its trees split codes where the ground holds codes.
    """

    def __init__(
        self, problem: Problem, layout: Layout, ground: Ground, params: dict[str, Scalar], *, threads: int
    ) -> None:
        self._problem = problem
        self._layout = layout
        self._ground = ground
        settings = effective(problem.model, problem.engine.name, layout.grown(params, 1))
        self.forest: Any = unfitted(problem.model, settings, seed=problem.seed, threads=threads)
        self.forest.set_params(warm_start=True, n_estimators=0)
        # Sums take the forest's classes; a fold may lack some of the problem's.
        self._codes = np.unique(ground.target) if problem.n_classes else None
        outputs = 1 if self._codes is None else len(self._codes)
        self._sums = np.zeros((len(layout.cuts), len(ground.truth), outputs))
        self._counts = np.zeros(len(ground.truth), np.int64)

    @property
    def trees(self) -> int:
        """How many trees it has."""
        return int(self.forest.n_estimators)

    @property
    def nbytes(self) -> int:
        """How much memory it takes, about."""
        trees = sum(estimator.tree_.node_count for estimator in self.forest.estimators_)
        return int(trees * (NODE_BYTES + 8 * self._sums.shape[2]) + self._sums.nbytes)

    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees.

        Raises:
            DataError: scikit-learn refuses the hyperparameters.
        """
        before = self.trees
        if trees <= before:
            return
        self.forest.set_params(n_estimators=trees)
        try:
            # What the first trees' fit has checked is not checked again: on few rows that takes longer than
            # the trees.
            with (
                sklearn.config_context(assume_finite=True, skip_parameter_validation=before > 0),
                warnings.catch_warnings(),
            ):
                # Balanced classes and a warm start: the rows are the same at every step.
                warnings.filterwarnings("ignore", "class_weight presets", UserWarning)
                self.forest.fit(self._ground.features, self._ground.target)
        except ValueError as error:
            raise refusal(self._problem.model, error) from error
        self._add(before)

    def _add(self, first: int) -> None:
        new = copy.copy(self.forest)
        new.estimators_ = self.forest.estimators_[first:]
        drawn = new.estimators_samples_ if self._ground.positions is not None else None
        rows = len(self._ground.features)
        for number, estimator in enumerate(new.estimators_):
            tree = estimator.tree_
            landings = Nodes.of(tree).landings(self._layout.cuts, rows)
            values = tree.value[:, 0, :]
            scored = self._unseen(drawn[number]) if drawn else np.arange(len(self._ground.truth))
            self._counts[scored] += 1
            for start in range(0, len(scored), CHUNK):
                chunk = scored[start : start + CHUNK]
                leaves = tree.apply(self._ground.probe[chunk])
                for sums, landing in zip(self._sums, landings, strict=True):
                    sums[chunk] += values[landing[leaves]]

    def _unseen(self, drawn: NDArray[Any]) -> NDArray[np.int64]:
        seen = np.zeros(len(self._ground.features), np.bool_)
        seen[drawn] = True
        return np.flatnonzero(~seen[self._ground.positions])

    def answered(self) -> NDArray[np.bool_]:
        """Say of each scored row whether any tree has answered it."""
        return self._counts > 0

    def prediction(self, cut: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return what the forest predicts under a cut, as ``Fitted.predict`` does.

        Args:
            cut: position in the layout's ``cuts``.
            rows: which of the scored rows.
        """
        mean: NDArray[np.float64] = self._sums[cut, rows] / self._counts[rows, None]
        if self._codes is None:
            return mean[:, 0]
        if len(self._codes) == self._problem.n_classes:
            return mean
        full = np.zeros((len(mean), self._problem.n_classes))
        full[:, self._codes] = mean
        return full

    def scores(self) -> tuple[float, ...]:
        """Return the score under every cut.

        Raises:
            DataError: the metric is not defined for the rows.
        """
        rows = np.flatnonzero(self.answered())
        truth = self._ground.truth[rows]
        return tuple(
            self._problem.score(truth, self.prediction(cut, rows)) for cut in range(len(self._layout.cuts))
        )

    def scores_without(self, cut: int, groups: NDArray[Any]) -> NDArray[np.float64]:
        """Return the score under a cut without the rows of each group in turn.

        Args:
            cut: position in the layout's ``cuts``.
            groups: (n_scored,) the group of each row, from 0.
        """
        rows = np.flatnonzero(self.answered())
        truth, prediction, group = self._ground.truth[rows], self.prediction(cut, rows), groups[rows]
        found = []
        for number in range(int(groups.max()) + 1):
            kept = group != number
            found.append(self._problem.score(truth[kept], prediction[kept]))
        return np.asarray(found)
