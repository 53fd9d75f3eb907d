"""How close ``dmls plan`` comes to the memory that ``dmls train`` then takes, over shapes and models.

Run it as root with ``python tests/bench/plan_memory.py``: each training runs in a control group of its own,
so the validation beside the trainer counts too. ``peak MB`` is the most memory that no file backs (the kernel
gives the cache of files back before it ends a process), read every 10 ms. ``plan / peak`` is 1 where the plan
is exact, and below 1 where a run needs more than its plan.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run
from tests.bench.scaling import write_data

DMLS = str(Path(sys.executable).with_name("dmls"))
CELLS = 20_000_000
"""Most values of one shape: 80 MB as float32."""

SPEC = """model = "{model}-{task}"
n_trials = {trials}
[columns]
target = "y"
"""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Plan and train each shape."""
    sizes = product(
        map(int, arguments.rows.split(",")), map(int, arguments.columns.split(",")), ("csv", "parquet")
    )
    kinds = cycle(product(("random-forest", "xgboost", "lightgbm"), ("classifier", "regressor")))
    shapes = [size for size in sizes if size[0] * size[1] <= CELLS]
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
        found = []
        for (rows, columns, suffix), (model, task) in zip(shapes, kinds, strict=False):
            found.append(_one(Path(folder), rows, columns, suffix, model, task, arguments.trials))
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def _one(folder: Path, rows: int, columns: int, suffix: str, model: str, task: str, trials: int) -> Row:
    data, spec, out = (
        folder / f"data.{suffix}",
        folder / "spec.toml",
        folder / f"out-{rows}-{columns}-{suffix}",
    )
    write_data(data, rows, columns, classes=task == "classifier")
    spec.write_text(SPEC.format(model=model, task=task, trials=trials))
    plan = json.loads(_output(DMLS, "plan", "--json", str(spec), str(data)))
    with control_group() as group:
        peak = peak_memory([DMLS, "train", str(spec), str(data), "--out", str(out)], group)
    planned = plan["memory_bytes"] / 2**20
    return {
        "rows": rows,
        "columns": columns,
        "format": suffix,
        "model": f"{model}-{task}",
        "matrix MB": plan["matrix_bytes"] / 2**20,
        "plan MB": planned,
        "peak MB": peak / 2**20,
        "plan / peak": planned / (peak / 2**20),
    }


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@contextmanager
def control_group() -> Iterator[Path]:
    """Make a control group (version 1 or 2) for one command, and remove it afterwards."""
    root = Path("/sys/fs/cgroup")
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = {names: path.lstrip("/") for _, names, path in lines}
    parent = root / "memory" / own["memory"] if "memory" in own else root / own[""]
    group = parent / f"dmls-bench-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()


def peak_memory(command: list[str], group: Path) -> int:
    """Run a command in a control group; return the most anonymous memory of its processes, in bytes."""
    peak = 0
    inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(inside, stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            figures = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            peak = max(peak, int(figures.get("total_rss") or figures["anon"]))
            time.sleep(0.01)
        errors.seek(0)
        assert process.returncode == 0, errors.read()[-3000:]
    return peak


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--rows", "300,3000,30000,300000", "numbers of rows, separated by commas"),
        ("--columns", "4,20,60,300,2000", "numbers of columns, separated by commas"),
        ("--trials", 3, "trials of each search"),
    )
