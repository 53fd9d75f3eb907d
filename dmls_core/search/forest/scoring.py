"""The rows that forests grow on, as bin codes; the rows that they are scored on; and their scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.models.engines import ForestEngine
from dmls_core.models.engines.base import Array
from dmls_core.search.task import SearchTask, Space
from dmls_core.spec.definitions import Choice, Scalar

BINS = 255
"""Maximum bins of a feature; a feature with no more values than this loses none."""

_SAMPLE = 100_000
"""Maximum number of rows that quantiles are computed from."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Encodes features as bin codes, and decodes thresholds between codes to thresholds between values.

    Per feature, ``edges`` are ascending: code k holds the values above ``edges[k - 1]`` up to ``edges[k]``.
    """

    edges: tuple[NDArray[np.float32], ...]

    @classmethod
    def of(cls, features: NDArray[np.float32], *, seed: int) -> Bins:
        """Return the bins of features without missing values: (n_rows, n_features) float32."""
        rows: Any = slice(None)
        if len(features) > _SAMPLE:
            rows = np.sort(np.random.default_rng(seed).choice(len(features), _SAMPLE, replace=False))
        return cls(tuple(_edges(features[rows, column]) for column in range(features.shape[1])))

    def encode(
        self, features: NDArray[np.float32], codes: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the codes, float32, of the same shape; in ``codes`` if given, which may be ``features``."""
        if codes is None:
            codes = np.empty(features.shape, np.float32)
        for column, edges in enumerate(self.edges):
            codes[:, column] = np.searchsorted(edges, features[:, column], side="left")
        return codes

    def decode(self, features: NDArray[np.int64], thresholds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return thresholds between values that split rows as the thresholds between codes do.

        ``code <= t`` is ``value <= edges[floor(t)]``. ``features`` holds the column of each node's split,
        negative in a leaf, whose threshold stays. All arrays have the shape (n_nodes,).
        """
        decoded = thresholds.copy()
        inner = np.flatnonzero(features >= 0)
        offsets = np.cumsum([0, *(len(edges) for edges in self.edges)])
        flat = np.concatenate(self.edges) if offsets[-1] else np.empty(0, np.float32)
        decoded[inner] = flat[offsets[features[inner]] + thresholds[inner].astype(np.int64)]
        return decoded


def _edges(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return float32 edges half way between neighbouring values, as scikit-learn splits."""
    ordered, counts = np.unique(values, return_counts=True)
    if len(ordered) > BINS:
        # Quantiles of the rows: a bin ends at the last value that fits.
        ends = np.searchsorted(np.cumsum(counts), len(values) * np.arange(1, BINS) / BINS)
        ends = np.unique(ends[ends < len(ordered) - 1])
    else:
        ends = np.arange(len(ordered) - 1)
    low, high = ordered[ends], ordered[ends + 1]
    middle = (low.astype(np.float64) + high).astype(np.float64) / 2
    edges = middle.astype(np.float32)
    # Rounding must not carry an edge up to the next value.
    return np.where(edges >= high, low, edges)


SUMS_BYTES = 128 * 2**20
"""Memory for the sums of one forest's predictions; beyond it, fewer rows are scored."""

MIN_SCORED = 2_000
"""Number of rows that are scored regardless of the memory they take."""

_MAX_SCORED = 50_000
"""Maximum scored rows: more rows would not separate configurations better than new data does."""

_EVERY_FOLD_ROWS = 5_000
"""Rows up to which forests without out-of-bag rows are scored on every fold; beyond, on the first one."""

_MAX_DRAWS = 1.5
"""Maximum mean number of draws of a row by one tree for out-of-bag scores; at this number, a fifth of the
trees has not seen the row."""


@dataclass(frozen=True, slots=True)
class ScoringSplit:
    """A matrix to grow a forest on, and rows to score it on; all but ``truth`` is on the engine's device.

    Attributes:
        features: (n_rows, n_features) float32 to grow on.
        target: (n_rows,) target of these rows.
        probe: (n_probed, n_features) matrix with the rows to score.
        scored: (n_scored,) positions of these rows in ``probe``.
        truth: (n_scored,) their target.
        out_of_bag: ``probe`` is ``features``, and trees vote only on rows that they have not seen.
        weights: (n_rows,) weights of the rows to grow on; None if all are equal.
        scored_weights: (n_scored,), likewise.
    """

    features: Array
    target: Array
    probe: Array
    scored: NDArray[np.int64]
    truth: NDArray[Any]
    out_of_bag: bool
    weights: Array | None = None
    scored_weights: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True)
class ScoringData:
    """The splits of a task: a forest grows on each, and the score is the mean.

    There is a single one for out-of-bag scores, else one for each scored fold.
    """

    splits: tuple[ScoringSplit, ...]
    bins: Bins | None

    @property
    def out_of_bag(self) -> bool:
        """Whether forests are scored on out-of-bag rows."""
        return self.splits[0].out_of_bag


def prepare_scoring(task: SearchTask, space: Space, limits: int) -> ScoringData:
    """Return the rows of a task to grow on and to score, for ``limits`` prunings of each tree.

    Scores are out of bag if every forest of ``space`` draws its rows, and the task allows it.
    """
    bins = None
    features = task.features
    on_cpu = task.engine.device == "cpu"
    # Extra trees draw thresholds between values, and would differ on codes. cuML bins features itself.
    if on_cpu and task.model.family == "random-forest":
        bins = Bins.of(features, seed=task.seed)
        features = bins.encode(features)
    limit = most_scored(task, limits)
    generator = np.random.default_rng(task.seed)

    def few(rows: NDArray[Any]) -> NDArray[Any]:
        if len(rows) <= limit:
            return rows
        return np.sort(generator.choice(rows, limit, replace=False))

    draws = task.engine.effective(task.model, space.fixed)["bootstrap"]
    draws = draws and "bootstrap" not in space.searched and _most_drawn(task, space) <= _MAX_DRAWS
    engine = task.engine
    knows_draws = on_cpu or (isinstance(engine, ForestEngine) and engine.reports_draws())
    if knows_draws and draws and task.out_of_bag:
        rows = few(np.arange(len(task.truth)))
        weights = task.weights, _of(task.weights, rows)
        split = ScoringSplit(features, task.target, features, rows, task.truth[rows], True, *weights)
        return ScoringData((split,), bins)
    folds = task.folds if len(task.truth) <= _EVERY_FOLD_ROWS else task.folds[:1]
    splits = []
    for fold in folds:
        rows = few(fold.test)
        train, probed = task.engine.place(fold.train), task.engine.place(rows)
        matrix, target, probe = features[train], task.target[train], features[probed]
        weights = task.weighing(fold.train).get("weights"), _of(task.weights, rows)
        positions = np.arange(len(rows))
        splits.append(ScoringSplit(matrix, target, probe, positions, task.truth[rows], False, *weights))
    return ScoringData(tuple(splits), bins)


def most_scored(task: SearchTask, limits: int) -> int:
    """Return the maximum number of scored rows, for ``limits`` prunings of each tree."""
    return min(_MAX_SCORED, max(MIN_SCORED, SUMS_BYTES // (8 * limits * max(1, task.n_classes))))


def _of(weights: NDArray[np.float64] | None, rows: NDArray[Any]) -> NDArray[np.float64] | None:
    return None if weights is None else weights[rows]


def _most_drawn(task: SearchTask, space: Space) -> float:
    """Return the maximum, over a space, of the mean draws of a row of the rarest class by one tree.

    scikit-learn draws rows by their weights. With balanced classes, it draws rows of rare classes more often:
    of two classes, each row of one with a twentieth of the rows ten times, and hardly any tree would be out
    of bag for it. ``max_samples`` may ask for more rows than there are.
    """
    rows = len(task.truth)
    asked = [value for value in _values(space, "max_samples") if isinstance(value, int)]
    drawn = max([1.0, *(value / rows for value in asked)])
    if task.weights is not None:
        drawn *= float(task.weights.max() / task.weights.mean())
    if "balanced" not in _values(space, "class_weight"):
        return drawn
    _, counts = np.unique(task.truth, return_counts=True)
    return float(drawn * rows / (len(counts) * counts.min()))


def _values(space: Space, name: str) -> tuple[Scalar, ...]:
    """Return the values of a hyperparameter in a space, or the ends of its range."""
    values = space.searched.get(name)
    if values is None:
        return (space.fixed[name],) if name in space.fixed else ()
    return tuple(values.values) if isinstance(values, Choice) else (values.min, values.max)


class ForestScorer(ABC):
    """A growing forest on one split.

    ``target`` is the target of the rows that it grows on, in the CPU's memory. ``codes`` are the classes
    among these rows, of which a fold may lack some; ``None`` for a regression.
    """

    def __init__(self, task: SearchTask, split: ScoringSplit, target: NDArray[Any]) -> None:
        self._task = task
        self._split = split
        self.codes = np.unique(target) if task.n_classes else None

    @property
    def outputs(self) -> int:
        """Number of outputs of a tree."""
        return 1 if self.codes is None else len(self.codes)

    @property
    @abstractmethod
    def trees(self) -> int:
        """Number of trees."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Approximate memory in bytes."""

    @abstractmethod
    def grow(self, trees: int) -> None:
        """Grow to ``trees`` trees, if there are fewer."""

    @abstractmethod
    def first_equal(self) -> list[int]:
        """Return for each pruning the first one that is equal in every tree so far."""

    @abstractmethod
    def has_votes(self) -> NDArray[np.bool_]:
        """Return for each scored row whether any tree votes on it."""

    @abstractmethod
    def voting_share(self) -> float:
        """Return the mean share of trees that vote on a scored row."""

    @abstractmethod
    def mean(self, limit: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean prediction of the trees under a pruning: (n_rows, outputs).

        ``limit`` is a position in the space's ``limits``; at least one tree votes on each of the scored
        ``rows``.
        """

    def prediction(self, limit: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the predictions under a pruning, as ``Fitted.predict`` does; see ``mean``."""
        mean = self.mean(limit, rows)
        if self.codes is None:
            return mean[:, 0]
        if len(self.codes) == self._task.n_classes:
            return mean
        full = np.zeros((len(mean), self._task.n_classes))
        full[:, self.codes] = mean
        return full

    def scores(self) -> tuple[float, ...]:
        """Return the score under every pruning."""
        rows = np.flatnonzero(self.has_votes())
        truth = self._split.truth[rows]
        first = self.first_equal()
        weights = _of(self._split.scored_weights, rows)
        scores = {
            limit: self._task.score(truth, self.prediction(limit, rows), weights) for limit in set(first)
        }
        return tuple(scores[limit] for limit in first)

    def scores_without(self, limit: int, groups: NDArray[Any], count: int) -> NDArray[np.float64]:
        """Return the score under a pruning without the rows of each group in turn: (count,).

        ``groups`` holds the group, from 0, of each scored row. With few rows some groups are empty.
        """
        rows = np.flatnonzero(self.has_votes())
        truth, prediction, group = self._split.truth[rows], self.prediction(limit, rows), groups[rows]
        weights = _of(self._split.scored_weights, rows)
        scores = []
        for number in range(count):
            others = group != number
            try:
                scores.append(self._task.score(truth[others], prediction[others], _of(weights, others)))
            except DataError:
                # The group has all rows of a class, or the only row: count it as no change.
                scores.append(self._task.score(truth, prediction, weights))
        return np.asarray(scores)


class SummedForest(ForestScorer):
    """A forest that keeps the sums of its trees' predictions, (n_scored, n_slots, outputs).

    Prunings that have made no difference to any tree so far share a slot.
    """

    def __init__(self, task: SearchTask, split: ScoringSplit, limits: int) -> None:
        super().__init__(task, split, split.target)
        self._sums = np.zeros((len(split.truth), 1, self.outputs))
        self._slots = [0] * limits
        self._counts = np.zeros(len(split.truth), np.int64)

    def has_votes(self) -> NDArray[np.bool_]:
        """Return for each scored row whether any tree votes on it."""
        return self._counts > 0

    def voting_share(self) -> float:
        """Return the mean share of trees that vote on a scored row."""
        return float(self._counts.mean() / self.trees)

    def first_equal(self) -> list[int]:
        """Return for each pruning the first one that is equal in every tree so far."""
        return [self._slots.index(slot) for slot in self._slots]

    def mean(self, limit: int, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean prediction of the trees; see ``ForestScorer.mean``."""
        means: NDArray[np.float64] = self._sums[rows, self._slots[limit]] / self._counts[rows, None]
        return means
