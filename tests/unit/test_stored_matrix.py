"""A matrix in a file gives the same values and predictions as one in memory."""

from __future__ import annotations

import numpy as np
import pytest

from dmls_core import stored_matrix
from dmls_core.stored_matrix import StoredMatrix, predict_rows, row_blocks

ROWS = np.array([7, 0, 3, 19, 12, 4, 18, 11])


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)


@pytest.fixture
def stored(values, tmp_path, monkeypatch) -> StoredMatrix:
    monkeypatch.setattr(stored_matrix, "BLOCK_BYTES", 4 * 3 * 5)  # five rows
    file = np.memmap(tmp_path / "matrix", np.float32, "w+", shape=values.shape, order="F")
    file[:] = values
    return StoredMatrix(file, ROWS)


@pytest.mark.parametrize(
    "key",
    [2, slice(1, 4), np.array([5, 0]), (slice(None), 1), (slice(2, 6), slice(0, 2))],
    ids=["row", "slice", "indices", "column", "part"],
)
def test_indexing_is_that_of_the_rows_in_memory(stored, values, key):
    assert np.array_equal(stored[key], values[ROWS][key])
    assert stored[key].flags.c_contiguous


def test_blocks_read_every_row_once_in_the_order_of_the_file(stored, values):
    positions, blocks = zip(*stored.blocks(), strict=True)

    assert max(map(len, blocks)) <= 5
    assert len(blocks) == 4
    assert ROWS[np.concatenate(positions)].tolist() == sorted(ROWS.tolist())
    assert np.array_equal(np.concatenate(blocks), values[np.sort(ROWS)])
    assert sum(map(len, row_blocks(stored))) == len(stored) == 8


def test_predictions_are_in_the_order_of_the_rows(stored, values):
    found = predict_rows(lambda rows: np.stack([rows[:, 0], rows.sum(axis=1)], axis=1), stored)

    assert np.allclose(found[:, 1], values[ROWS].sum(axis=1))
    assert np.array_equal(found[:, 0], values[ROWS, 0])


def test_taking_rows_reads_none(stored, values):
    taken = stored.take(np.array([6, 1]))

    assert isinstance(taken, StoredMatrix)
    assert np.array_equal(taken[:], values[ROWS[[6, 1]]])
    assert not taken.ascending
    assert stored.take(np.array([1, 2])).ascending
