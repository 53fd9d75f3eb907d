"""Forests of scikit-learn on a cluster: each worker grows trees on rows of its own, which are random ones.

Tree ``i`` grows on shard ``i % n_shards``: the first trees of a forest are a smaller forest on all shards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.models.engines.sharded import Rows, Shard, send_rows
from dmls_core.spec.definitions import Scalar

if TYPE_CHECKING:
    from dmls_core.models.engines.base import Forest

TREES = "n_estimators"


def fit_forest(
    rows: Rows, model: str, params: Mapping[str, Scalar], trees: int, *, n_classes: int, seed: int
) -> Forest:
    """Return a forest of scikit-learn with ``trees`` trees, fitted on all rows; see ``Engine.fit``."""
    cluster = rows[0].cluster

    def attempt() -> list[Forest]:
        shards = send_rows(rows, seed=seed)
        counts = trees_of_shards(trees, len(shards))
        calls = [
            cluster.submit(
                number,
                _fit_trees,
                model,
                {**params, TREES: count},
                shard,
                n_classes,
                shard_seed(seed, number),
            )
            for number, (shard, count) in enumerate(zip(shards, counts, strict=True))
            if count
        ]
        return cluster.results(calls)

    return join_forests(cluster.retried(attempt), seed=seed)


def _fit_trees(model: str, params: Mapping[str, Scalar], shard: Shard, n_classes: int, seed: int) -> Forest:
    """Fit a forest on one shard, on its worker."""
    from distributed import get_worker

    from dmls_core.models.catalogue import CATALOGUE, load_engine

    fitted: Any = load_engine("cpu", model).fit(
        CATALOGUE[model],
        params,
        shard.features,
        shard.target,
        n_classes=n_classes,
        seed=seed,
        threads=get_worker().state.nthreads,
        weights=shard.weights,
    )
    return fitted.forest


def trees_of_shards(trees: int, shards: int) -> list[int]:
    """Return how many of a forest's ``trees`` trees grow on each shard."""
    return [len(range(number, trees, shards)) for number in range(shards)]


def shard_seed(seed: int, number: int) -> int:
    """Return the seed of the trees of one shard; with one seed, they would draw the same rows and columns."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def join_forests(forests: Sequence[Forest], *, seed: int) -> Forest:
    """Return one forest with the trees of each shard's in turn; it replaces the first one.

    A shard may lack classes: its trees get leaves for the others.
    """
    joined = forests[0]
    if hasattr(joined, "classes_"):
        classes = np.unique(np.concatenate([forest.classes_ for forest in forests]))
        for forest in forests:
            if len(forest.classes_) < len(classes):
                _add_classes(forest, classes)
        joined.classes_, joined.n_classes_ = classes, len(classes)
    grown = [forest.estimators_ for forest in forests]
    trees = sum(len(estimators) for estimators in grown)
    estimators = [grown[number % len(grown)][number // len(grown)] for number in range(trees)]
    joined.estimators_ = estimators
    joined.set_params(n_estimators=trees, random_state=seed)
    return joined


def _add_classes(forest: Forest, classes: NDArray[Any]) -> None:
    """Give a forest's trees the output of all ``classes``."""
    columns = np.searchsorted(classes, forest.classes_)
    for estimator in forest.estimators_:
        tree = estimator.tree_
        state = tree.__getstate__()
        values = np.zeros((tree.node_count, 1, len(classes)))
        values[:, :, columns] = state["values"]
        wider = type(tree)(tree.n_features, np.array([len(classes)], np.intp), tree.n_outputs)
        wider.__setstate__({**state, "values": values})
        estimator.tree_, estimator.n_classes_ = wider, len(classes)
        estimator.classes_ = np.arange(len(classes), dtype=np.float64)
