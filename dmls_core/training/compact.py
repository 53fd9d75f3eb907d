"""Compact a fitted model: fewer trees, and a smaller depth of a forest, that lose nothing measurable.

The holdout decides nothing here, so that the reported score stays unbiased. A bootstrapped forest is scored
at every size on its out-of-bag rows. Each tree leaves out a good third of the rows, so a number of trees is
scored with a third of its votes: the choice errs towards more trees. Other models are fitted once more on
each fold of the search, which costs about as much as one trial by cross-validation.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.cluster import ShardedMatrix
from dmls_core.models.engines import BoostingEngine, Fitted, GrowingForestEngine
from dmls_core.models.engines.forests import FittedForest
from dmls_core.search.boosting.objective import bin_rows
from dmls_core.search.forest.trees import Nodes, prune_forest
from dmls_core.search.task import SearchTask
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.formats.treelite.forest_size import forest_size
from dmls_core.serving.formats.treelite.gtil import predict_float32
from dmls_core.spec.definitions import Scalar
from dmls_core.training.prepare import draw_rows
from dmls_core.training.size_choice import NestedSizes, choose_size

_FEWEST_TREES = 10
"""Fewer trees are not tried: they predict coarse probabilities."""

_STEP = 2**-0.5
"""Ratio of one number of trees to the next larger one."""

MAX_DEPTHS = 24
"""Maximum number of depths that are tried; further apart in deeper trees."""

_FEWEST_ROWS = 100
"""Fewer rows cannot show that a size loses nothing."""

_VALUES = 20_000_000
"""Maximum number of predictions in memory, which limits the rows."""

TIMED, WARM_UP = 200, 20
"""Predictions of one row whose median is the latency, after ``WARM_UP`` others."""


def compact_model(
    task: SearchTask, fitted: Fitted, params: Mapping[str, Scalar], metric: str, row: NDArray[np.float32]
) -> tuple[Fitted, dict[str, Any] | None]:
    """Return the smallest model that loses nothing measurable, and ``compact`` of ``result.json``.

    ``fitted`` has the hyperparameters ``params`` and must not be used afterwards: its trees are pruned in
    place. ``row``, (1, n_features), is predicted to measure the latency. The record is ``None``, and the
    model stays, if its engine cannot make it smaller or there are too few rows to choose.
    """
    sizes = nested_sizes(task, fitted, params)
    if sizes is None:
        return fitted, None
    before = measure_size(fitted, row)
    largest = len(sizes.trees) - 1, len(sizes.depths) - 1
    chosen = choose_size(sizes, metric, sign=task.sign, classifier=task.n_classes > 0, seed=task.seed)
    after, smaller = before, fitted
    if chosen != largest:
        depth = sizes.depths[chosen[1]] if chosen[1] != largest[1] else None
        smaller = shrink(task, fitted, sizes.trees[chosen[0]], depth)
        after = measure_size(smaller, row)
    return smaller, {"before": before, "after": after, "rows": len(sizes.truth)}


def describe_compaction(sizes: Mapping[str, Any]) -> str:
    """Return ``compact`` of ``result.json`` as one line for the log."""
    before, after = sizes["before"], sizes["after"]
    if before == after:
        return f"no smaller size of the model loses nothing measurable on {sizes['rows']:,} rows"
    return (
        f"compacted from {before['trees']:,} trees of depth {before['depth']} to {after['trees']:,} of depth "
        f"{after['depth']}: {after['bytes'] / before['bytes']:.0%} of the bytes"
    )


def measure_size(fitted: Fitted, row: NDArray[np.float32]) -> dict[str, Any]:
    """Return trees, depth, nodes, bytes of the checkpoint, and the latency of one row in this process."""
    model = checkpoint.snap_thresholds(fitted.to_treelite())
    size = forest_size(model)
    seconds = []
    for _ in range(WARM_UP + TIMED):
        started = time.perf_counter()
        predict_float32(model, row, threads=1)
        seconds.append(time.perf_counter() - started)
    return {
        "trees": size["trees"],
        "depth": len(size["nodes_to_depth"]) - 1,
        "nodes": size["nodes_to_depth"][-1],
        "bytes": len(model.serialize_bytes()),
        "latency_ms": round(1000 * statistics.median(seconds[WARM_UP:]), 4),
    }


def shrink(task: SearchTask, fitted: Fitted, trees: int, depth: int | None) -> Fitted:
    """Keep the first ``trees`` trees (rounds of a booster), and prune a forest's below ``depth``.

    A node that becomes a leaf predicts the mean of its own training rows.
    """
    if not isinstance(fitted, FittedForest):
        return fitted.first_rounds(trees)
    limits: dict[str, Scalar] = {"n_estimators": trees}
    if depth is not None:
        limits["max_depth"] = depth
        prune_forest(fitted.forest, trees, {"max_depth": depth}, len(task.truth), None)
    fitted.forest.estimators_ = fitted.forest.estimators_[:trees]
    fitted.forest.set_params(**limits)
    engine = cast("GrowingForestEngine", task.engine)
    return engine.wrap(task.model, {**fitted.settings, **limits}, fitted.forest, task.n_classes)


def nested_sizes(task: SearchTask, fitted: Fitted, params: Mapping[str, Scalar]) -> NestedSizes | None:
    """Return the predictions of a model at smaller sizes; ``None`` if there is no way to choose one."""
    if isinstance(fitted, FittedForest):
        return _forest_sizes(task, fitted, params)
    if isinstance(task.engine, BoostingEngine) and fitted.can_stop_earlier():
        return _booster_sizes(task, fitted, params)
    return None


def tree_counts(trees: int) -> tuple[int, ...]:
    """Return the numbers of trees to try, ascending, down to ``_FEWEST_TREES``."""
    counts = [trees]
    while (fewer := round(counts[-1] * _STEP)) >= _FEWEST_TREES:
        counts.append(fewer)
    return tuple(reversed(counts))


def tree_depths(depth: int) -> tuple[int, ...]:
    """Return the depths to try, ascending."""
    if depth <= MAX_DEPTHS:
        return tuple(range(1, depth + 1)) or (0,)
    return tuple(np.unique(np.geomspace(1, depth, MAX_DEPTHS).round().astype(int)).tolist())


def _forest_sizes(task: SearchTask, fitted: FittedForest, params: Mapping[str, Scalar]) -> NestedSizes | None:
    """Score a forest on its out-of-bag rows or, without bootstrap, a forest of each fold on its rows."""
    estimators = fitted.forest.estimators_
    counts, depths = tree_counts(len(estimators)), tree_depths(max(one.tree_.max_depth for one in estimators))
    each = len(counts) * len(depths) * max(1, task.n_classes)
    # On a cluster the trees have drawn from the rows of their shards.
    if fitted.forest.bootstrap and task.out_of_bag and not isinstance(task.features, ShardedMatrix):
        rows = draw_rows(np.arange(len(task.truth)), _room(each), task.seed)
        parts = [_add_up(task, fitted, rows, counts, depths, out_of_bag=True)]
    else:
        parts = []
        for fold in task.folds:
            rows = draw_rows(fold.test, _room(each * len(task.folds)), task.seed)
            forest = cast("FittedForest", task.fit(params, fold.train))
            parts.append(_add_up(task, forest, rows, counts, depths, out_of_bag=False))
    nodes = np.sum([part.nodes for part in parts], axis=0)
    predictions = np.concatenate([part.predictions for part in parts], axis=2)
    truth = np.concatenate([part.truth for part in parts])
    weights = None if task.weights is None else np.concatenate([cast("Any", part.weights) for part in parts])
    sizes = NestedSizes(counts, depths, nodes, predictions, truth, weights)
    return sizes if len(truth) >= _FEWEST_ROWS else None


def _add_up(
    task: SearchTask,
    fitted: FittedForest,
    rows: NDArray[np.integer],
    counts: tuple[int, ...],
    depths: tuple[int, ...],
    *,
    out_of_bag: bool,
) -> NestedSizes:
    """Add up the predictions of a forest's trees, cut at each depth, for rows that they have not seen."""
    forest = fitted.forest
    columns = forest.classes_.astype(int) if task.n_classes else np.zeros(1, int)
    limits = [{"max_depth": depth} for depth in depths]
    features = np.ascontiguousarray(task.features[rows])
    sums = np.zeros((len(depths), len(rows), len(columns)))
    votes = np.zeros(len(rows), np.int64)
    nodes = np.zeros(len(depths), np.int64)
    predictions = np.zeros((len(counts), len(depths), len(rows), max(1, task.n_classes)), np.float32)
    voted, costs = np.ones(len(rows), np.bool_), np.zeros(predictions.shape[:2], np.int64)
    for number, (tree, drawn) in enumerate(grown_trees(forest, out_of_bag=out_of_bag), start=1):
        tree_nodes = Nodes.of(tree)
        unseen = np.flatnonzero(~np.isin(rows, drawn)) if drawn is not None else np.arange(len(rows))
        leaves = tree_nodes.pruned_leaves(limits, 0)[tree.apply(features[unseen])]
        values = tree.value[:, 0, :]
        for depth in range(len(depths)):
            sums[depth, unseen] += values[leaves[:, depth]]
        votes[unseen] += 1
        nodes += np.searchsorted(np.sort(tree_nodes.depths), depths, side="right")
        if number in counts:
            at = counts.index(number)
            predictions[at][:, :, columns] = sums / np.maximum(votes, 1)[:, None]
            voted &= votes > 0
            costs[at] = nodes
    # With ten trees, about one row in a hundred has been drawn by all of them.
    rows = rows[voted]
    weights = None if task.weights is None else task.weights[rows]
    return NestedSizes(counts, depths, costs, predictions[:, :, voted], task.truth[rows], weights)


def grown_trees(forest: Any, *, out_of_bag: bool) -> Iterator[tuple[Any, NDArray[np.integer] | None]]:  # noqa: ANN401
    """Yield each tree of a scikit-learn forest with the rows that it has drawn."""
    one = copy.copy(forest)
    for estimator in forest.estimators_:
        one.estimators_ = [estimator]
        yield estimator.tree_, one.estimators_samples_[0] if out_of_bag else None


def _booster_sizes(task: SearchTask, fitted: Fitted, params: Mapping[str, Scalar]) -> NestedSizes | None:
    """Grow a booster on each fold, and predict the fold's rows after each number of rounds."""
    outputs = max(1, task.n_classes)
    each = task.n_classes if task.n_classes > 2 else 1
    counts = tree_counts(fitted.to_treelite().num_tree // each)
    room = _room(len(counts) * outputs * len(task.folds))
    rows = [draw_rows(fold.test, room, task.seed) for fold in task.folds]
    scored = np.concatenate(rows)
    truth, weights = task.truth[scored], None if task.weights is None else task.weights[scored]
    if len(truth) < _FEWEST_ROWS:
        return None
    fold_predictions = [
        [np.asarray(growing.grow(count), np.float32).reshape(-1, outputs) for count in counts]
        for growing in (
            bin_rows(task, params, fold.train, test).start(params)
            for fold, test in zip(task.folds, rows, strict=True)
        )
    ]
    predictions = np.concatenate(fold_predictions, axis=1)[:, None]
    return NestedSizes(counts, (0,), np.array(counts)[:, None], predictions, truth, weights)


def _room(each: int) -> int:
    """Return how many rows fit in memory with ``each`` predictions."""
    return max(1, _VALUES // each)
