"""Training on one machine, and on nodes that each hold a part of the rows.

Run it with ``python tests/bench/nodes.py``. ``matrix MB`` is the float32 matrix. ``node MB`` is the most
memory that no file backs of one node, ``trainer MB`` that of the trainer. CPU seconds are those of all
processes. With ``--memory``, each node and the trainer have this
limit; a node that exceeds it is ended. ``--kill 1`` kills a node when the first trial has been logged.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.larger_than_memory import write_data_set
from tests.bench.plan_memory import DMLS
from tests.bench.report import Row, run

SPEC = """model = "{library}-classifier"
n_trials = {trials}
[columns]
target = "y"
[n_estimators]
value = {rounds}
[max_depth]
min = 4
max = {depth}
[resources]
nodes = {nodes}
{memory}
"""

FORESTS = ("random-forest", "extra-trees")
BOOSTED = "[learning_rate]\nvalue = 0.1\n"


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Train on each size with each number of nodes."""
    rows = [int(text) for text in arguments.rows.split(",")]
    nodes = [int(text) for text in arguments.nodes.split(",")]
    return [row for size in rows for row in _of_size(arguments, size, nodes)]


def _of_size(arguments: argparse.Namespace, rows: int, nodes: list[int]) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
        data = Path(folder) / "data.parquet"
        write_data_set(data, rows, arguments.columns)
        return [_trained(arguments, Path(folder), data, rows, count) for count in nodes]


def _trained(arguments: argparse.Namespace, folder: Path, data: Path, rows: int, nodes: int) -> Row:
    spec, out = folder / f"spec-{nodes}.toml", folder / f"out-{nodes}"
    text = SPEC.format(
        library=arguments.library,
        trials=arguments.trials,
        rounds=arguments.rounds,
        nodes=nodes,
        depth=arguments.depth,
        memory=f'memory = "{arguments.memory} MiB"' if arguments.memory and nodes > 1 else "",
    )
    spec.write_text(text if arguments.library in FORESTS else text + BOOSTED)
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    trainer = psutil.Popen(
        [DMLS, "train", str(spec), str(data), "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    Thread(target=lines.extend, args=(trainer.stderr,), daemon=True).start()
    peaks: dict[int, int] = {}
    kills = arguments.kill if nodes > 1 else 0
    while trainer.poll() is None:
        workers = _workers(trainer)
        for process in (trainer, *workers):
            peaks[process.pid] = max(peaks.get(process.pid, 0), _anonymous(process))
        if kills and workers and any(line.startswith("trial 0") for line in lines):
            workers[0].kill()
            kills = 0
        time.sleep(0.05)
    if trainer.returncode:
        raise SystemExit("".join(lines))
    used, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
    result = json.loads((out / "result.json").read_text())
    low, high = result["holdout"]["interval"]
    own = peaks.pop(trainer.pid)
    return {
        "rows": rows,
        "nodes": nodes,
        "lost": sum("nodes lost" in line for line in lines),
        "matrix MB": 4 * rows * arguments.columns / 2**20,
        "search s": result["seconds"]["search"],
        "refit s": result["seconds"]["refit"],
        "wall s": wall,
        "CPU s": used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime,
        "trainer MB": own / 2**20,
        "node MB": max(peaks.values(), default=0) / 2**20,
        "score": result["score"],
        "interval": f"{low:.4f} to {high:.4f}",
    }


def _workers(trainer: psutil.Popen) -> list[psutil.Process]:
    """Return the processes of the nodes, whose titles setproctitle may have changed."""
    found = []
    for child in trainer.children():
        try:
            if any(title in " ".join(child.cmdline()) for title in ("spawn_main", "dask worker")):
                found.append(child)
        except psutil.Error:
            continue
    return found


def _anonymous(process: psutil.Process) -> int:
    """Return the bytes of a process that no file backs; 0 once it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon")), 0)


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--rows", "50000,300000", "rows of each data set"),
        ("--columns", 100, "columns of numbers"),
        ("--nodes", "1,2", "numbers of nodes"),
        ("--trials", 3, "trials of the search"),
        ("--rounds", 50, "boosting rounds, or trees"),
        ("--depth", 6, "largest depth of the search"),
        ("--library", "xgboost", "xgboost, lightgbm, random-forest or extra-trees"),
        ("--memory", 0, "limit of several nodes and their trainer, in MB; 0: none"),
        ("--kill", 0, "1: kill a node during the search"),
    )
