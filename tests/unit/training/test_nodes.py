"""Clusters that are refused, the memory of nodes, and their rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from dmls_core.errors import EngineUnavailableError, PlatformError
from dmls_core.models import load_spec
from dmls_core.models.cluster import ShardedMatrix, deal
from dmls_core.training import nodes
from dmls_core.training.plan import plan_run

SPEC = """model = "xgboost-regressor"
n_trials = 2
[columns]
target = "y"
[n_estimators]
value = 10
[resources]
nodes = {nodes}
memory = "{memory}"
"""


def spec_of(count: int, memory: str = "8 GiB"):
    return load_spec(SPEC.format(nodes=count, memory=memory).encode())


def open_nodes(count: int) -> object:
    with nodes.open_cluster(spec_of(count), "unused", note=lambda _: None) as cluster:
        return cluster


def test_a_spec_with_one_node_needs_no_cluster(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DMLS_DASK_SCHEDULER", "tls://127.0.0.1:1")
    assert open_nodes(1) is None


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "127.0.0.1:8786", "ucx://dask:8786"])
def test_a_cluster_without_tls_is_refused(address: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DMLS_DASK_SCHEDULER", address)
    with pytest.raises(PlatformError, match=f"DMLS_DASK_SCHEDULER must begin with tls://, not '{address}'"):
        open_nodes(2)


def test_nodes_without_dask_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nodes, "find_spec", lambda _: None)
    with pytest.raises(
        EngineUnavailableError, match=r"nodes = 2 needs .* dask, distributed; pip install 'dmls\[dask\]'"
    ):
        open_nodes(2)


def test_the_plan_has_the_memory_of_each_node(tmp_path: Path):
    data = tmp_path / "data.parquet"
    values = np.random.default_rng(1).normal(size=(2_000, 3))
    pl.DataFrame(values, schema=["x", "z", "y"]).write_parquet(data)

    def plan(count: int, memory: str = "8 GiB"):
        return plan_run(spec_of(count, memory), [data], factor=10_000, limit=8 << 30)

    one, two, four = plan(1), plan(2), plan(4)
    assert one.node_bytes == 0
    assert two.node_bytes > four.node_bytes > one.matrix_bytes / 4
    assert any("memory 1 GiB is less than the run needs" in text for text in plan(2, "1 GiB").warnings)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_row_goes_to_one_worker(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dmls_core.stored_matrix.BLOCK_BYTES", 4 * 2 * 5)  # five rows
    values = np.arange(46, dtype=np.float32).reshape(23, 2)
    (tmp_path / "matrix").write_bytes(values.tobytes(order="F"))
    file = np.memmap(tmp_path / "matrix", np.float32, "r", shape=(23, 2), order="F")
    wanted = np.random.default_rng(0).permutation(23)[:17]
    matrix = ShardedMatrix(file, wanted, cluster=None)

    places: list[tuple[int, int]] = []
    found: list[int] = []
    for worker, first, positions, block in matrix.shards(count):
        assert np.array_equal(block, values[wanted[positions]])
        places += [(worker, first + at) for at in range(len(block))]
        found += positions.tolist()

    assert sorted(found) == list(range(17))
    sizes = [sum(worker == one for worker, _ in places) for one in range(count)]
    assert max(sizes) - min(sizes) <= 1
    assert places == [(worker, at) for worker, size in enumerate(sizes) for at in range(size)]
    assert found == np.argsort(wanted).tolist()


@pytest.mark.parametrize("count", [2, 3])
def test_rows_are_dealt_out_at_random(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dmls_core.stored_matrix.BLOCK_BYTES", 4 * 2 * 5)  # five rows
    values = np.arange(200, dtype=np.float32).reshape(100, 2)
    (tmp_path / "matrix").write_bytes(values.tobytes(order="F"))
    file = np.memmap(tmp_path / "matrix", np.float32, "r", shape=(100, 2), order="F")
    wanted = np.random.default_rng(0).permutation(100)[:80]
    matrix = ShardedMatrix(file, wanted, cluster=None)

    found: list[list[int]] = [[] for _ in range(count)]
    for number, first, positions, block in matrix.dealt(count, seed=3):
        assert np.array_equal(block, values[wanted[positions]])
        assert first == len(found[number])
        found[number] += positions.tolist()

    assert [set(np.flatnonzero(deal(80, count, 3) == number)) for number in range(count)] == [
        set(own) for own in found
    ]
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert all(min(wanted[own]) < 20 and max(wanted[own]) >= 80 for own in found)
    assert not np.array_equal(deal(80, count, 3), deal(80, count, 4))
