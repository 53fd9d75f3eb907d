"""Boosted trees on a cluster: each worker runs the engine on its own rows, and an all-reduce joins them.

The functions at the end run on workers; their arguments and results are what Dask sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.models.cluster import ShardedMatrix, deal, shard_ends
from dmls_core.models.engines.all_reduce import Library, Member, SocketMember, all_reduce
from dmls_core.models.engines.base import Binned, Growing
from dmls_core.models.engines.lightgbm_rows import NodeRows, sample_to_bin
from dmls_core.spec.definitions import Scalar

if TYPE_CHECKING:
    from distributed import Future

    from dmls_core.models.engines.base import FloatArray

Rows = tuple[ShardedMatrix, NDArray[Any], NDArray[Any] | None]
"""Rows to fit on, with targets and weights."""


@dataclass(frozen=True, slots=True)
class FitArguments:
    """The arguments of ``Engine.fit`` that are the same on all workers."""

    library: Library
    model: str
    params: Mapping[str, Scalar]
    categories: tuple[int, ...]
    n_classes: int
    seed: int


def fit_sharded(rows: Rows, arguments: FitArguments) -> Any:  # noqa: ANN401 - the library's
    """Return the library's booster, fitted on all rows; see ``Engine.fit``."""
    cluster = rows[0].cluster

    def attempt() -> Any:  # noqa: ANN401 - the library's
        shards = send_rows(rows)
        samples = _send_samples(rows[0], arguments)
        with all_reduce(cluster, arguments.library) as members:
            parts = zip(shards, samples, members, strict=True)
            calls = [
                cluster.submit(worker, _fit_shard, arguments, *part) for worker, part in enumerate(parts)
            ]
            return cluster.results(calls)[0]

    return cluster.retried(attempt)


class ShardedBins(Binned):
    """Rows in the library's bins on the workers of a cluster; see ``Binned``."""

    def __init__(self, rows: Rows, scored: ShardedMatrix, arguments: FitArguments) -> None:
        self.cluster = rows[0].cluster
        self.arguments = arguments
        self.positions: NDArray[np.intp] = np.empty(0, np.intp)
        self._rows = rows
        self._scored = scored
        self._parts: list[Future] = []
        self._generation = 0
        self.cluster.retried(self.parts)

    def parts(self) -> list[Future]:
        """Return the bins on each worker; after one was lost, all rows are sent again."""
        if self._generation != self.cluster.generation:
            self._parts = []
            shards = send_rows(self._rows)
            scored = send_rows((self._scored, None, None))
            samples = _send_samples(self._rows[0], self.arguments)
            with all_reduce(self.cluster, self.arguments.library) as members:
                self._parts = [
                    self.cluster.submit(worker, _bin_shard, self.arguments, *part)
                    for worker, part in enumerate(zip(shards, scored, samples, members, strict=True))
                ]
                self.cluster.wait(self._parts)
            self.positions = np.argsort(self._scored.rows, kind="stable")
            self._generation = self.cluster.generation
        return self._parts

    def start(self, params: Mapping[str, Scalar]) -> GrowingShards:
        """Return a booster without trees; see ``Binned.start``."""
        return GrowingShards(self, params)


class GrowingShards(Growing):
    """A booster that grows on each worker alike; see ``Growing``."""

    def __init__(self, binned: ShardedBins, params: Mapping[str, Scalar]) -> None:
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
                    cluster.submit(worker, GrowingShard, part, self._params)
                    for worker, part in enumerate(bins)
                ]
                self._bins = bins
            with all_reduce(cluster, self._binned.arguments.library) as members:
                calls = [
                    cluster.submit(worker, _grow_shard, booster, rounds, member)
                    for worker, (booster, member) in enumerate(zip(self._boosters, members, strict=True))
                ]
                return cluster.results(calls)

        parts = np.concatenate(cluster.retried(attempt))
        predictions: FloatArray = np.empty_like(parts)
        predictions[self._binned.positions] = parts
        return predictions


def send_rows(
    rows: tuple[ShardedMatrix, NDArray[Any] | None, NDArray[Any] | None], *, seed: int | None = None
) -> list[Future]:
    """Copy each worker's rows to its memory; return a ``Shard`` on each.

    A worker gets a range of the rows or, with a ``seed``, random ones. There are then as many shards as the
    run has nodes, even if fewer workers are left: what is fitted on a shard depends on no loss.
    """
    matrix, target, weights = rows
    cluster, columns = matrix.cluster, matrix.shape[1]
    count = len(cluster.workers) if seed is None else cluster.nodes
    if len(matrix) < count:
        raise DataError(
            ValidationIssue(
                "there are too few rows for so many nodes", key="resources.nodes", found=f"{len(matrix)} rows"
            )
        )
    if seed is None:
        sizes, parts = np.diff(shard_ends(len(matrix), count), prepend=0), matrix.shards(count)
    else:
        sizes = np.bincount(deal(len(matrix), count, seed), minlength=count)
        parts = matrix.dealt(count, seed)
    dtype, weighted = None if target is None else target.dtype.str, weights is not None
    shards = [
        cluster.submit(worker, _make_shard, size, columns, dtype, weighted)
        for worker, size in enumerate(sizes.tolist())
    ]
    for worker, first, positions, block in parts:
        arrays = [None if values is None else values[positions] for values in (target, weights)]
        # One part at a time: neither process holds more than that beside its rows.
        cluster.wait(
            [
                cluster.submit(
                    worker, _fill_shard, shards[worker], first, *cluster.send(worker, [block, *arrays])
                )
            ]
        )
    return shards


def _send_samples(matrix: ShardedMatrix, arguments: FitArguments) -> list[Future | None]:
    """Copy the rows by which LightGBM finds the bins to each worker; XGBoost's all-reduce finds its own."""
    cluster = matrix.cluster
    count = len(cluster.workers)
    if arguments.library == "xgboost":
        return [None] * count
    sample = sample_to_bin(matrix)
    return [cluster.send(worker, [sample])[0] for worker in range(count)]


@dataclass(slots=True)
class Shard:
    """One worker's rows."""

    features: NDArray[np.float32]
    target: NDArray[Any] | None
    weights: NDArray[np.float64] | None


def _make_shard(rows: int, columns: int, target: str | None, weighted: bool) -> Shard:
    """Return memory for rows, with targets of a NumPy type and weights if there are any."""
    return Shard(
        np.empty((rows, columns), np.float32),
        None if target is None else np.empty(rows, target),
        np.empty(rows) if weighted else None,
    )


def _fill_shard(
    shard: Shard,
    first: int,
    features: NDArray[np.float32],
    target: NDArray[Any] | None,
    weights: NDArray[np.float64] | None,
) -> None:
    """Copy rows into a shard, from row ``first`` on."""
    block = slice(first, first + len(features))
    shard.features[block] = features
    if shard.target is not None:
        shard.target[block] = target
    if shard.weights is not None:
        shard.weights[block] = weights


def _fit_shard(arguments: FitArguments, shard: Shard, sample: FloatArray | None, member: Member) -> Any:  # noqa: ANN401
    """Fit a booster together with the other workers; return it."""
    engine, rows, named = _engine_arguments(arguments, shard, sample, member)
    return member.call(lambda: engine.fit(*rows, **named)).booster


def _bin_shard(
    arguments: FitArguments, shard: Shard, scored: Shard, sample: FloatArray | None, member: Member
) -> Binned:
    """Bin rows in the same bins as the other workers."""
    engine, rows, named = _engine_arguments(arguments, shard, sample, member)
    binned: Binned = member.call(lambda: engine.bin(*rows, scored.features, **named))
    return binned


def _engine_arguments(
    arguments: FitArguments, shard: Shard, sample: FloatArray | None, member: Member
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    from distributed import get_worker

    from dmls_core.models.catalogue import CATALOGUE, load_engine

    model = CATALOGUE[arguments.model]
    engine = load_engine("cpu", arguments.model)
    engine.categories = arguments.categories
    features: Any = shard.features
    if isinstance(member, SocketMember) and sample is not None:
        features = NodeRows(features, sample, member.size)
    named: dict[str, Any] = {"n_classes": arguments.n_classes, "seed": arguments.seed}
    named |= {"threads": get_worker().state.nthreads, "weights": shard.weights}
    return engine, (model, arguments.params, features, shard.target), named


class GrowingShard(Growing):
    """A worker's booster; it begins with the first rounds, when the other workers are there."""

    def __init__(self, binned: Binned, params: Mapping[str, Scalar]) -> None:
        self._binned = binned
        self._params = params
        self._growing: Growing | None = None

    def grow(self, rounds: int) -> FloatArray:
        """Grow and predict; see ``Growing.grow``."""
        self._growing = self._growing or self._binned.start(self._params)
        return self._growing.grow(rounds)


def _grow_shard(growing: Growing, rounds: int, member: Member) -> FloatArray:
    """Grow the booster together with the other workers; predict this worker's rows."""
    return member.call(lambda: growing.grow(rounds))
