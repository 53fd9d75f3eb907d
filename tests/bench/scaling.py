"""How time and peak memory of a whole ``dmls train`` grow with the rows, on 54 columns.

Run it with ``python tests/bench/scaling.py``; each size is a trainer of its own. ``base MB`` is the peak of
a trainer on ``BARE`` rows: interpreter and libraries, which no data changes. What the data adds to it, the
model left out, is shown as a multiple of the float32 matrix: once for all of it (buffers of a fixed size
weigh much on small data), and once for what is added from one size to the next, which is what grows.
The validation is a process beside the trainer; its peak is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run

COLUMNS = 54
BARE = 300

SPEC = """model = "{model}"
n_trials = {trials}
[columns]
target = "y"
[n_estimators]
min = 10
max = 40
[max_depth]
min = 4
max = 12
"""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Train on each size in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
        spec = Path(folder) / "spec.toml"
        spec.write_text(SPEC.format(model=arguments.model, trials=arguments.trials))
        sizes = [BARE, *map(int, arguments.rows.split(","))]
        found = [_trained(Path(folder), spec, rows, arguments.format) for rows in sizes]
    return [_row(figures, smaller, found[0]) for smaller, figures in pairwise(found)]


def _trained(folder: Path, spec: Path, rows: int, data_format: str) -> dict[str, float]:
    data = folder / f"{rows}.{data_format}"
    write_data(data, rows)
    command = [sys.executable, __file__, "--one", str(spec), str(data), str(folder / f"out-{rows}")]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    size = data.stat().st_size
    data.unlink()
    return figures | {"rows": rows, "file": size / 2**20, "process": time.monotonic() - started}


def _row(figures: dict[str, float], smaller: dict[str, float], bare: dict[str, float]) -> Row:
    matrix, less = (one["rows"] * COLUMNS * 4 / 2**20 for one in (figures, smaller))
    data, before = (one["peak"] - one["model"] for one in (figures, smaller))
    base = bare["peak"] - bare["model"]
    return {
        "rows": int(figures["rows"]),
        "file MB": figures["file"],
        "load s": figures["load"],
        "search s": figures["search"],
        "refit s": figures["refit"],
        "total s": figures["total"],
        "process s": figures["process"],
        "CPU s": figures["cpu"],
        "matrix MB": matrix,
        "model MB": figures["model"],
        "base MB": base,
        "peak MB": figures["peak"],
        "added / matrix": (data - base) / matrix,
        "grown / matrix": (data - before) / (matrix - less),
        "validation MB": figures["validation"],
    }


def one(spec: str, data: str, out: str) -> dict[str, float]:
    """Train once, in this process; sizes are in MiB."""
    from dmls_core.training import TrainRequest, train

    result = train(TrainRequest(spec, (data,), out), progress=lambda _: None)
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    model = next(item for item in result["artifacts"] if item["name"] == "model/checkpoint.tl")
    return {
        **{phase: result["seconds"][phase] for phase in ("load", "search", "refit", "total")},
        "cpu": own.ru_utime + own.ru_stime,
        "peak": _peak(),
        "validation": children.ru_maxrss / 1024,
        "model": model["bytes"] / 2**20,
    }


def _peak() -> float:
    """Return the most memory that this process has held, in MiB.

    ``ru_maxrss`` would tell what its parent had held, where that is more: it outlives the start of a program.
    """
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def write_data(path: Path, rows: int, columns: int = COLUMNS, *, classes: int = 2) -> None:
    """Write numbers and a target of classes or (0) of numbers, as CSV or Parquet by the file's name."""
    import numpy as np
    import polars as pl

    draw = np.random.default_rng(1)
    values = draw.normal(size=(rows, columns)).astype(np.float32)
    target = values[:, :5].sum(axis=1) + draw.normal(size=rows)
    codes = np.digitize(target, np.quantile(target, np.arange(1, classes) / max(1, classes)))
    frame = pl.DataFrame({f"x{column}": values[:, column] for column in range(columns)})
    frame = frame.with_columns(
        y=pl.Series(codes).cast(pl.String).str.replace("^", "class ") if classes else pl.Series(target)
    )
    if path.suffix == ".csv":
        frame.write_csv(path, float_precision=4)
    else:
        frame.write_parquet(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(*sys.argv[2:])))
    else:
        run(
            __doc__,
            measure,
            ("--rows", "1000,10000,100000,500000", "numbers of rows, separated by commas"),
            ("--model", "random-forest-classifier", "model of the spec"),
            ("--trials", 3, "trials of the search"),
            ("--format", "csv", "csv or parquet"),
        )
