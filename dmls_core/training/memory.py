"""Decide whether a run's data fits in its memory, before the data is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dmls_core.data.memory import measure_table
from dmls_core.hardware import memory_limit, parse_memory
from dmls_core.spec import Spec

MATRICES = 3.1
"""Maximum memory of loading and searching, in sizes of the matrix (``tests/bench/scaling.py``, XGBoost)."""

BASE_BYTES = 640 << 20
"""Memory of the trainer and of the validation beside it, without data (``tests/bench/plan_memory.py``)."""

FEWEST = 0.25
"""Share of the memory that the data may take in any case."""


def run_memory(spec: Spec) -> int:
    """Return the bytes that a run may use on this machine: the lowest limit, ``[resources]`` included."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    available = min(machine, memory_limit() or machine)
    return min(available, parse_memory(spec.resources.memory)) if spec.resources.memory else available


def data_memory(spec: Spec) -> int:
    """Return the size of the largest float32 matrix that the run can hold in memory, in bytes."""
    limit = run_memory(spec)
    return int(max(limit - BASE_BYTES, FEWEST * limit) / MATRICES)


def describe_stored(spec: Spec) -> str:
    """Return the message about data that is read from disk."""
    return (
        f"the data does not fit in {run_memory(spec) / 2**30:.3g} GiB of memory: it is read from disk, and "
        "the search scores trials on one fold"
    )


def exceeds_memory(spec: Spec, paths: Sequence[Path]) -> bool:
    """Return whether the data must be read from disk: its matrix, by its rows and columns, is too large.

    Raises:
        DataError: a file cannot be opened, or lacks a column.
    """
    size = measure_table(paths, spec)
    return 4 * size.rows * size.features > data_memory(spec)
