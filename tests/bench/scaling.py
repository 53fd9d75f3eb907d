"""How time and memory of a whole ``dmls train`` grow with rows, columns and cores.

Run it with ``python tests/bench/scaling.py``; each size is a trainer of its own.

- ``--what cost`` (the default) trains on each of ``--sizes``. ``ns a cell`` is the CPU time that the data
  adds, over its values: the time of a trainer on ``BARE``, interpreter and libraries, is left out. So is its
  memory from ``added / matrix``, the memory that the data adds, without the model, as a multiple of
  the float32 matrix. The validation is a process beside the trainer; its peak is its own.
- ``--what strong`` trains on the first size with each number of ``--cores``; ``speed-up`` is against the
  first.
- ``--what weak`` takes as many times the rows as cores; ``efficiency`` is 1 where the wall time stays.

``--engine gpu`` does the same with cuDF and cuML on a GPU (not yet run on one).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run

COLUMNS = 54
BARE = 300, 10
"""Rows and columns of the trainer whose cost is left out."""

BLOCK_VALUES = 20_000_000
"""Numbers that are drawn and written at a time."""

SPEC = """model = "{model}"
n_trials = {trials}
[columns]
target = "y"
[n_estimators]
min = 4
max = {trees}
[max_depth]
min = 4
max = {depth}
"""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Train on each size, or with each number of cores, in processes of their own."""
    sizes = [tuple(map(int, size.split("x"))) for size in arguments.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as name:
        folder = Path(name)
        spec = folder / "spec.toml"
        spec.write_text(SPEC.format(**vars(arguments)))
        trained = partial(_trained, folder, spec, arguments)
        trained(*BARE)  # the first start reads the libraries from the disk
        bare = trained(*BARE)
        if arguments.what == "cost":
            return [_cost(trained(rows, columns), bare) for rows, columns in sizes]
        (rows, columns), *_ = sizes
        cores = [int(count) for count in arguments.cores.split(",")]
        growth = {count: count if arguments.what == "weak" else 1 for count in cores}
        found = {count: trained(rows * growth[count], columns, cores=count) for count in cores}
    return [_scaled(count, growth[cores[-1]], figures, found[cores[0]]) for count, figures in found.items()]


def _trained(
    folder: Path, spec: Path, arguments: argparse.Namespace, rows: int, columns: int, *, cores: int = 0
) -> dict[str, float]:
    data, out = folder / f"{rows}-{columns}.{arguments.format}", folder / f"out-{rows}-{columns}-{cores}"
    write_data(data, rows, columns)
    command = [sys.executable, __file__, "--one", str(spec), str(data), str(out), arguments.engine]
    allowed = sorted(os.sched_getaffinity(0))[: cores or None]
    if len(allowed) < cores:
        raise SystemExit(f"{cores} cores were asked for, and this process may use {len(allowed)}")
    begun = time.monotonic()
    done = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=partial(os.sched_setaffinity, 0, allowed)
    )
    assert done.returncode == 0, done.stderr[-3000:]
    size = data.stat().st_size / 2**20
    data.unlink()
    shutil.rmtree(out)  # a further run would return its result
    return json.loads(done.stdout.splitlines()[-1]) | {
        "rows": rows,
        "columns": columns,
        "file": size,
        "process": time.monotonic() - begun,
    }


def _cost(figures: dict[str, float], bare: dict[str, float]) -> Row:
    """Return what a size costs for each of its values."""
    cells = figures["rows"] * figures["columns"]
    matrix, base = cells * 4 / 2**20, bare["peak"] - bare["model"]
    row: Row = {
        "rows": int(figures["rows"]),
        "columns": int(figures["columns"]),
        "file MB": figures["file"],
        **{f"{phase} CPU s": figures[f"{phase} CPU"] for phase in ("load", "search", "validation")},
        "CPU s": figures["cpu"],
        "ns a cell": (figures["cpu"] - bare["cpu"]) * 1e9 / cells,
        "matrix MB": matrix,
        "model MB": figures["model"],
        "base MB": base,
        "peak MB": figures["peak"],
        "added / matrix": (figures["peak"] - figures["model"] - base) / matrix,
        "validation MB": figures["validation"],
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def _scaled(cores: int, growth: int, figures: dict[str, float], first: dict[str, float]) -> Row:
    """Return what cores gain over the first number of them."""
    gain = "speed-up" if growth == 1 else "efficiency"
    return {
        "cores": cores,
        "rows": int(figures["rows"]),
        "columns": int(figures["columns"]),
        "search s": figures["search"],
        "process s": figures["process"],
        "CPU s": figures["cpu"],
        **{f"{gain} ({phase})": first[phase] / figures[phase] for phase in ("search", "process")},
    }


def one(spec: str, data: str, out: str, engine: str) -> dict[str, float]:
    """Train once, in this process; sizes are in MiB, CPU seconds include the validation's."""
    from dmls_core.training import TrainRequest, train
    from dmls_core.training.progress import Progress

    spent, timed = {"load": 0.0, "search": 0.0}, Progress.phase

    @contextmanager
    def phase(progress: Progress, name: str) -> Iterator[None]:
        begun = time.process_time()
        with timed(progress, name):
            yield
        spent[name] = time.process_time() - begun

    Progress.phase = phase  # type: ignore[method-assign]
    result = train(TrainRequest(spec, (data,), out, engine=engine), progress=lambda _: None)
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    model = next(item for item in result["artifacts"] if item["name"] == "model/checkpoint.tl")
    return {
        **{phase: result["seconds"][phase] for phase in ("load", "search", "refit", "total")},
        **{f"{phase} CPU": spent[phase] for phase in ("load", "search")},
        "validation CPU": children.ru_utime + children.ru_stime,
        "cpu": sum(used.ru_utime + used.ru_stime for used in (own, children)),
        "peak": _peak(),
        "validation": children.ru_maxrss / 1024,
        "model": model["bytes"] / 2**20,
    }


def _peak() -> float:
    """Return the most memory that this process has held, in MiB.

    ``ru_maxrss`` would give what its parent had held, where that is more: it outlives the start of a program.
    """
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def write_data(path: Path, rows: int, columns: int = COLUMNS, *, classes: int = 2) -> None:
    """Write numbers and a target of classes or (0) of numbers, as CSV or Parquet by the file's name."""
    import numpy as np
    import polars as pl
    import pyarrow.parquet as pq

    draw, writer, limits = np.random.default_rng(1), None, None
    with path.open("wb") as file:
        for start in range(0, rows, block := max(1, BLOCK_VALUES // columns)):
            values = draw.normal(size=(min(block, rows - start), columns)).astype(np.float32)
            target = values[:, :5].sum(axis=1) + draw.normal(size=len(values))
            if limits is None:
                limits = np.quantile(target, np.arange(1, classes) / max(1, classes))
            codes = pl.Series(np.digitize(target, limits)).cast(pl.String).str.replace("^", "class ")
            frame = pl.DataFrame({f"x{column}": values[:, column] for column in range(columns)})
            frame = frame.with_columns(y=codes if classes else pl.Series(target))
            if path.suffix == ".csv":
                frame.write_csv(file, float_precision=4, include_header=not start)
                continue
            table = frame.to_arrow()
            writer = writer or pq.ParquetWriter(file, table.schema)
            writer.write_table(table)
        if writer:
            writer.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(*sys.argv[2:])))
    else:
        run(
            __doc__,
            measure,
            ("--what", "cost", "cost, strong or weak"),
            ("--sizes", "1000x54,10000x54,100000x54,500000x54", "rows and columns, separated by commas"),
            ("--cores", "1,2", "numbers of cores, for strong and weak"),
            ("--model", "random-forest-classifier", "model of the spec"),
            ("--engine", "cpu", "cpu or gpu"),
            ("--trials", 3, "trials of the search"),
            ("--trees", 40, "largest number of trees"),
            ("--depth", 12, "largest depth"),
            ("--format", "csv", "csv or parquet"),
        )
