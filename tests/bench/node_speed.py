"""Speed-up of a fit from one node to two: all rows on one worker of one thread, or half of them on each.

Run it with ``python tests/bench/node_speed.py``. A fit begins with the rows in a file of the trainer and
ends with the model there. ``fit s`` is the fastest of ``--repeats`` fits in turn. ``CPU s`` are those of all
processes; ``path CPU s`` those of the trainer and the busiest worker, also comparable on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run

NODES = (1, 2)


class Times:
    """What a fit took."""

    def __init__(self, wall: float, trainer: float, *workers: float) -> None:
        self.wall = wall
        self.cpu = trainer + sum(workers)
        self.path = trainer + max(workers)


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Fit each model on one worker and on two, in turn."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    from dmls_core.models.cluster import Cluster
    from dmls_core.training.dask_settings import CONFIGURATION

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dmls-bench-"))
        file, target = _write(Path(folder), arguments.rows, arguments.columns)
        options = {"host": "127.0.0.1", "dashboard_address": None, "security": Security.temporary()}
        stack.enter_context(dask.config.set(CONFIGURATION))
        clusters = {}
        for count in NODES:
            local = stack.enter_context(LocalCluster(n_workers=count, threads_per_worker=1, **options))
            client = stack.enter_context(Client(local))
            clusters[count] = Cluster(client, count, "127.0.0.1", lambda line: print(line, file=sys.stderr))
        rows = []
        for model in arguments.models.split(","):
            found: dict[int, list[Times]] = {count: [] for count in NODES}
            for _ in range(arguments.repeats):
                for count, cluster in clusters.items():
                    taken = _timed(partial(_fit, model, cluster, file, target, arguments), cluster)
                    print(f"{model} on {count}: {vars(taken)}", file=sys.stderr, flush=True)
                    found[count].append(taken)
            best = {count: min(times, key=lambda taken: taken.wall) for count, times in found.items()}
            rows += [_row(model, count, best[count], best[1]) for count in NODES]
    return rows


def _fit(
    model: str, cluster: Any, file: np.ndarray, target: np.ndarray, arguments: argparse.Namespace
) -> None:
    from dmls_core.models.cluster import ShardedMatrix
    from dmls_core.models.engines.sharded import FitArguments, fit_sharded
    from dmls_core.models.engines.sharded_forests import fit_forest

    rows = (ShardedMatrix(file, np.arange(len(file)), cluster), target, None)
    if model in ("xgboost", "lightgbm"):
        params = {"n_estimators": arguments.trees, "max_depth": 6, "learning_rate": 0.1}
        fit_sharded(rows, FitArguments(model, f"{model}-classifier", params, (), 2, 1))
    else:
        trees = max(2, arguments.trees // 10)
        fit_forest(rows, f"{model}-classifier", {"max_depth": 12}, trees, n_classes=2, seed=1)


def _timed(call: Callable[[], None], cluster: Any) -> Times:
    """Return the seconds of a call, and the CPU seconds of this process and of the workers."""
    begun, before = time.monotonic(), _cpu(cluster)
    call()
    return Times(
        time.monotonic() - begun, *(now - then for now, then in zip(_cpu(cluster), before, strict=True))
    )


def _cpu(cluster: Any) -> list[float]:
    workers = cluster._client.run(os.getpid).values()
    return [sum(psutil.Process(pid).cpu_times()[:2]) for pid in (os.getpid(), *sorted(workers))]


def _row(model: str, count: int, best: Times, alone: Times) -> Row:
    return {
        "model": model,
        "nodes": count,
        "fit s": best.wall,
        "CPU s": best.cpu,
        "path CPU s": best.path,
        "speed-up": alone.wall / best.wall,
        "speed-up (path)": alone.path / best.path,
    }


def _write(folder: Path, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Write a matrix of numbers, column after column; return it with a target of two classes."""
    draw = np.random.default_rng(1)
    matrix = np.memmap(folder / "matrix", np.float32, "w+", shape=(rows, columns), order="F")
    total = np.zeros(rows)
    for column in range(columns):
        matrix[:, column] = draw.normal(size=rows)
        if column < 5:
            total += matrix[:, column]
    matrix.flush()
    target = (total + draw.normal(size=rows) > 0).astype(np.int32)
    return np.memmap(folder / "matrix", np.float32, "r", shape=(rows, columns), order="F"), target


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--rows", 200_000, "rows"),
        ("--columns", 50, "columns of numbers"),
        ("--models", "xgboost,lightgbm,random-forest", "models, separated by commas"),
        ("--trees", 40, "boosting rounds; a forest has a tenth of as many trees"),
        ("--repeats", 3, "fits of each model with each number of nodes"),
    )
