"""Training from disk within a memory limit, compared with training in memory without one.

Run it as root with ``python tests/bench/larger_than_memory.py``: each training runs in a control group, the
one from disk with ``--limit`` MB. ``peak MB`` is the most memory that no file backs. ``interval`` is the 95 %
interval of the score. ``--rows 13500000`` is a CSV of 10 GB; the run needs disk for twice the CSV beside it.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.plan_memory import DMLS, control_group, peak_memory
from tests.bench.report import Row, run

SPEC = """model = "{model}"
n_trials = {trials}
[columns]
target = "y"
[n_estimators]
value = {rounds}
[max_depth]
min = 4
max = 6
[learning_rate]
value = 0.1
"""


PART = 100_000
"""Rows that are written at a time."""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Train in memory and from disk on the same file."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
        spec = Path(folder) / "spec.toml"
        data = Path(arguments.keep or folder) / f"{arguments.rows}-{arguments.columns}.{arguments.format}"
        if not data.exists():
            write_data_set(data, arguments.rows, arguments.columns)
        spec.write_text(SPEC.format(model=arguments.model, trials=arguments.trials, rounds=arguments.rounds))
        limits = (arguments.limit,) if arguments.only_disk else (None, arguments.limit)
        return [_trained(Path(folder), spec, data, limit) for limit in limits]


def write_data_set(path: Path, rows: int, columns: int) -> None:
    """Write numbers and a target of two classes, as ``write_data`` does, some rows at a time."""
    import numpy as np
    import polars as pl
    import pyarrow.parquet as pq

    draw, writer = np.random.default_rng(1), None
    with path.open("wb") as file:
        for start in range(0, rows, PART):
            values = draw.normal(size=(min(PART, rows - start), columns)).astype(np.float32)
            target = values[:, :5].sum(axis=1) + draw.normal(size=len(values)) > 0
            frame = pl.DataFrame({f"x{column}": values[:, column] for column in range(columns)})
            frame = frame.with_columns(y=pl.Series(np.where(target, "class 1", "class 0")))
            if path.suffix == ".csv":
                frame.write_csv(file, float_precision=4, include_header=not start)
                continue
            table = frame.to_arrow()
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
        if writer:
            writer.close()


def _trained(folder: Path, spec: Path, data: Path, limit: int | None) -> Row:
    out = folder / f"out-{limit}"
    with control_group() as group:
        if limit:
            name = "memory.max" if (group / "memory.max").exists() else "memory.limit_in_bytes"
            (group / name).write_text(str(limit << 20))
        begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        peak = peak_memory([DMLS, "train", str(spec), str(data), "--out", str(out)], group)
        used, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
    result = json.loads((out / "result.json").read_text())
    low, high = result["holdout"]["interval"]
    row: Row = {
        "limit MB": limit or "none",
        "file MB": data.stat().st_size / 2**20,
        "trained rows": result["data"]["train_rows"],
        "folds": result["folds"],
        "load s": result["seconds"]["load"],
        "search s": result["seconds"]["search"],
        "refit s": result["seconds"]["refit"],
        "wall s": wall,
        "CPU s": used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime,
        "peak MB": peak / 2**20,
        "score": result["score"],
        "interval": f"{low:.4f} to {high:.4f}",
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--rows", 300_000, "rows"),
        ("--columns", 100, "columns of numbers"),
        ("--model", "xgboost-classifier", "a classifier"),
        ("--trials", 2, "trials of the search"),
        ("--rounds", 50, "boosting rounds, or trees"),
        ("--format", "csv", "csv or parquet"),
        ("--limit", 700, "memory limit of the run from disk, in MB"),
        ("--only-disk", 0, "1: without the run in memory"),
        ("--keep", "", "folder that keeps the data file, for further runs"),
    )
