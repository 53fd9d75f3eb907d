"""XGBoost on a cluster: each worker runs the engine on its own rows, and XGBoost's all-reduce joins them.

The functions at the end run on workers; their arguments and results are what Dask sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.models.cluster import Cluster, ShardedMatrix, shard_ends
from dmls_core.models.engines.base import Binned, Growing
from dmls_core.spec.definitions import Scalar

if TYPE_CHECKING:
    import xgboost
    from distributed import Future

    from dmls_core.models.engines.base import FloatArray

Rows = tuple[ShardedMatrix, NDArray[Any], NDArray[np.float64] | None]
"""Rows to fit on, with targets and weights."""


@dataclass(frozen=True, slots=True)
class FitArguments:
    """The arguments of ``Engine.fit`` that are the same on all workers, for a model of XGBoost."""

    model: str
    params: Mapping[str, Scalar]
    categories: tuple[int, ...]
    n_classes: int
    seed: int


def fit_sharded(rows: Rows, arguments: FitArguments, threads: int) -> xgboost.Booster:
    """Return a booster fitted on all rows, which predicts with ``threads``; see ``Engine.fit``."""
    cluster = rows[0].cluster

    def attempt() -> xgboost.Booster:
        shards = send_rows(rows)
        with all_reduce(cluster) as addresses:
            calls = [
                cluster.submit(worker, fit_shard, shard, arguments, addresses)
                for worker, shard in enumerate(shards)
            ]
            found: xgboost.Booster = cluster.results(calls)[0]
        return found

    booster = cluster.retried(attempt)
    booster.set_param({"nthread": threads})
    return booster


class ShardedXGBoost(Binned):
    """Rows in XGBoost's bins on the workers of a cluster; see ``Binned``."""

    def __init__(self, rows: Rows, scored: ShardedMatrix, arguments: FitArguments) -> None:
        self.cluster = rows[0].cluster
        self.positions: NDArray[np.intp] = np.empty(0, np.intp)
        self._rows = rows
        self._scored = scored
        self._arguments = arguments
        self._parts: list[Future] = []
        self._generation = 0
        self.cluster.retried(self.parts)

    def parts(self) -> list[Future]:
        """Return the bins on each worker; after one was lost, all rows are sent again."""
        if self._generation != self.cluster.generation:
            self._parts = []
            shards = send_rows(self._rows)
            scored = send_rows((self._scored, None, None))
            with all_reduce(self.cluster) as addresses:
                self._parts = [
                    self.cluster.submit(worker, bin_shard, *pair, self._arguments, addresses)
                    for worker, pair in enumerate(zip(shards, scored, strict=True))
                ]
                self.cluster.wait(self._parts)
            self.positions = np.argsort(self._scored.rows, kind="stable")
            self._generation = self.cluster.generation
        return self._parts

    def start(self, params: Mapping[str, Scalar]) -> GrowingShardedXGBoost:
        """Return a booster without trees; see ``Binned.start``."""
        return GrowingShardedXGBoost(self, params)


class GrowingShardedXGBoost(Growing):
    """A booster that grows on each worker alike; see ``Growing``."""

    def __init__(self, binned: ShardedXGBoost, params: Mapping[str, Scalar]) -> None:
        self._binned = binned
        self._params = params
        self._bins: list[Future] = []
        self._boosters: list[Future] = []

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        cluster = self._binned.cluster

        def attempt() -> list[FloatArray]:
            bins = self._binned.parts()
            if bins is not self._bins:
                self._boosters = [
                    cluster.submit(worker, start_shard, part, self._params)
                    for worker, part in enumerate(bins)
                ]
                self._bins = bins
            with all_reduce(cluster) as addresses:
                calls = [
                    cluster.submit(worker, grow_shard, booster, rounds, addresses)
                    for worker, booster in enumerate(self._boosters)
                ]
                return cluster.results(calls)

        parts = np.concatenate(cluster.retried(attempt))
        found: FloatArray = np.empty_like(parts)
        found[self._binned.positions] = parts
        return found


def send_rows(rows: tuple[ShardedMatrix, NDArray[Any] | None, NDArray[np.float64] | None]) -> list[Future]:
    """Copy each worker's rows to its memory; return a ``Shard`` on each."""
    matrix, target, weights = rows
    cluster, columns = matrix.cluster, matrix.shape[1]
    count = len(cluster.workers)
    if len(matrix) < count:
        raise DataError(
            ValidationIssue(
                "there are too few rows for so many nodes", key="resources.nodes", found=f"{len(matrix)} rows"
            )
        )
    ends = shard_ends(len(matrix), count)
    dtype, weighted = None if target is None else target.dtype.str, weights is not None
    shards = [
        cluster.submit(worker, make_shard, end - start, columns, dtype, weighted)
        for worker, (start, end) in enumerate(zip((0, *ends), ends, strict=False))
    ]
    for worker, first, positions, block in matrix.shards(count):
        own = [None if values is None else values[positions] for values in (target, weights)]
        # One part at a time: neither process holds more than that beside its rows.
        cluster.wait(
            [cluster.submit(worker, fill_shard, shards[worker], first, *cluster.send(worker, [block, *own]))]
        )
    return shards


@contextmanager
def all_reduce(cluster: Cluster) -> Iterator[dict[str, Any]]:
    """Run the tracker by which the workers find each other; yield what they need to know."""
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(len(cluster.workers), host_ip=cluster.host, sortby="task")
    tracker.start()
    try:
        yield tracker.worker_args()
    finally:
        tracker.free()


@dataclass(slots=True)
class Shard:
    """One worker's rows."""

    features: NDArray[np.float32]
    target: NDArray[Any] | None
    weights: NDArray[np.float64] | None


def make_shard(rows: int, columns: int, target: str | None, weighted: bool) -> Shard:
    """Return memory for rows, with targets of a NumPy type and weights if there are any."""
    return Shard(
        np.empty((rows, columns), np.float32),
        None if target is None else np.empty(rows, target),
        np.empty(rows) if weighted else None,
    )


def fill_shard(
    shard: Shard,
    first: int,
    features: NDArray[np.float32],
    target: NDArray[Any] | None,
    weights: NDArray[np.float64] | None,
) -> None:
    """Copy rows to their places."""
    own = slice(first, first + len(features))
    shard.features[own] = features
    if shard.target is not None:
        shard.target[own] = target
    if shard.weights is not None:
        shard.weights[own] = weights


@contextmanager
def _joined(addresses: Mapping[str, Any]) -> Iterator[None]:
    """Join the other workers' all-reduce."""
    from distributed import get_worker
    from xgboost import collective

    # Ranks in the order of addresses: the same rows have the same rank in every fit.
    context = collective.CommunicatorContext(dmlc_task_id=get_worker().address, **addresses)
    with ExitStack() as stack:
        with redirect_stdout(StringIO()):  # XGBoost prints each rank, whatever its verbosity
            stack.enter_context(context)
        yield


def _engine_arguments(shard: Shard, arguments: FitArguments) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    from distributed import get_worker

    from dmls_core.models.catalogue import CATALOGUE, load_engine

    model = CATALOGUE[arguments.model]
    engine = load_engine("cpu", arguments.model)
    engine.categories = arguments.categories
    named: dict[str, Any] = {"n_classes": arguments.n_classes, "seed": arguments.seed}
    named |= {"threads": get_worker().state.nthreads, "weights": shard.weights}
    return engine, (model, arguments.params, shard.features, shard.target), named


def fit_shard(shard: Shard, arguments: FitArguments, addresses: Mapping[str, Any]) -> xgboost.Booster:
    """Fit a booster together with the other workers; return it."""
    engine, rows, named = _engine_arguments(shard, arguments)
    with _joined(addresses):
        booster: xgboost.Booster = engine.fit(*rows, **named).booster
    return booster


def bin_shard(shard: Shard, scored: Shard, arguments: FitArguments, addresses: Mapping[str, Any]) -> Binned:
    """Bin rows in the same bins as the other workers."""
    engine, rows, named = _engine_arguments(shard, arguments)
    with _joined(addresses):
        binned: Binned = engine.bin(*rows, scored.features, **named)
    return binned


def start_shard(binned: Binned, params: Mapping[str, Scalar]) -> Growing:
    """Return a booster without trees."""
    return binned.start(params)


def grow_shard(growing: Growing, rounds: int, addresses: Mapping[str, Any]) -> FloatArray:
    """Grow the booster together with the other workers; predict this worker's rows."""
    with _joined(addresses):
        return growing.grow(rounds)
