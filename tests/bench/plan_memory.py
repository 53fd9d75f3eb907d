"""How close ``dmls plan`` comes to the memory that ``dmls train`` then takes, over shapes and models.

Run it as root with ``python tests/bench/plan_memory.py``: each training runs in a control group of its own,
so the validation beside the trainer counts too. ``peak MB`` is the most memory that no file backs (the kernel
gives the cache of files back before it ends a process), read every 10 ms. ``peak / plan`` is 1 where the plan
is exact, and above 1 where a run needs more than its plan.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run
from tests.bench.scaling import write_data

DMLS = str(Path(sys.executable).with_name("dmls"))
SPEC = """model = "{model}-{task}"
n_trials = {trials}
[columns]
target = "y"
[n_estimators]
value = 20
{depth}
{resources}
"""

DEPTH = "[max_depth]\nmin = 4\nmax = 8"

FOREST, XGBOOST, LIGHTGBM = "random-forest", "xgboost", "lightgbm"

SHAPES = (
    (300, 5, FOREST, 2, "csv", 0),
    (300, 50, XGBOOST, 0, "parquet", 0),
    (300, 2_000, LIGHTGBM, 2, "csv", 0),
    (3_000, 5, XGBOOST, 7, "csv", 0),
    (3_000, 20, FOREST, 0, "parquet", 0),
    (3_000, 300, LIGHTGBM, 2, "csv", 0),
    (3_000, 300, XGBOOST, 0, "parquet", 0),
    (3_000, 2_000, FOREST, 7, "parquet", 0),
    (3_000, 2_000, XGBOOST, 2, "csv", 0),
    (3_000, 2_000, LIGHTGBM, 0, "parquet", 0),
    (30_000, 5, LIGHTGBM, 0, "csv", 0),
    (30_000, 20, FOREST, 7, "csv", 0),
    (30_000, 20, XGBOOST, 0, "csv", 0),
    (30_000, 60, XGBOOST, 2, "parquet", 0),
    (30_000, 300, FOREST, 0, "csv", 0),
    (30_000, 300, LIGHTGBM, 2, "parquet", 0),
    (30_000, 300, XGBOOST, 2, "csv", 0),
    (100_000, 20, FOREST, 2, "csv", 0),
    (100_000, 54, FOREST, 2, "csv", 0),
    (100_000, 54, XGBOOST, 7, "csv", 0),
    (100_000, 54, LIGHTGBM, 0, "parquet", 0),
    (300_000, 5, FOREST, 2, "csv", 0),
    (300_000, 20, XGBOOST, 0, "parquet", 0),
    (300_000, 20, LIGHTGBM, 2, "csv", 0),
    (1_000_000, 5, XGBOOST, 2, "csv", 0),
    (1_000_000, 5, FOREST, 0, "parquet", 0),
    (1_000_000, 10, LIGHTGBM, 2, "csv", 0),
    (200_000, 54, XGBOOST, 2, "csv", 400),
    (200_000, 54, FOREST, 2, "csv", 400),
    (200_000, 54, LIGHTGBM, 0, "parquet", 400),
)
"""Rows, columns, model, classes (0: a regression), format, and ``[resources] memory`` in MiB (0: none)."""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Plan and train each shape."""
    chosen = [int(number) for number in arguments.only.split(",") if number] or range(len(SHAPES))
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
        found = []
        for number in chosen:
            found.append(_one(Path(folder), *SHAPES[number], trials=arguments.trials))
            print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    return found


def _one(
    folder: Path, rows: int, columns: int, model: str, classes: int, suffix: str, memory: int, *, trials: int
) -> Row:
    data, spec, out = folder / f"data.{suffix}", folder / "spec.toml", folder / "out"
    write_data(data, rows, columns, classes=classes)
    spec.write_text(
        SPEC.format(
            model=model,
            task="classifier" if classes else "regressor",
            trials=trials,
            depth=DEPTH if model != LIGHTGBM else "",
            resources=f'[resources]\nmemory = "{memory} MiB"' if memory else "",
        )
    )
    plan = json.loads(_output(DMLS, "plan", "--json", str(spec), str(data)))
    with control_group() as group:
        peak = peak_memory([DMLS, "train", str(spec), str(data), "--out", str(out)], group)
    shutil.rmtree(out)
    phases = plan["memory"]
    return {
        "rows": rows,
        "columns": columns,
        "format": suffix,
        "model": f"{model}, {classes} classes" if classes else f"{model}, regression",
        "from disk": "yes" if any("from disk" in warning for warning in plan["warnings"]) else "no",
        "matrix MB": plan["matrix_bytes"] / 2**20,
        "largest phase": max(phases, key=phases.get),
        "plan MB": plan["memory_bytes"] / 2**20,
        "peak MB": peak / 2**20,
        "peak / plan": peak / plan["memory_bytes"],
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
        ("--only", "", "positions of shapes, from 0, separated by commas; all by default"),
        ("--trials", 2, "trials of each search"),
    )
