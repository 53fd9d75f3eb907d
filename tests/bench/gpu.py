"""Random-forest search on a GPU against the CPU of the same machine, on 54 columns.

It needs an NVIDIA GPU and the packages of the gpu engine, and says so where they lack. Each run is a
whole ``dmls train`` in a process of its own: it reads (cuDF or Polars), searches (the nested search of
forests on both, of cuML's and of scikit-learn's), fits, exports, and fails if the exported model answers
otherwise than the fitted one. "GPU wins" is the CPU's time of search and refit over the GPU's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run
from tests.bench.scaling import SPEC, write_data

MODEL = "random-forest-classifier"
ENGINES = ("gpu", "cpu")


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Train on each size with each engine."""
    from dmls_core.models import CATALOGUE
    from dmls_core.training.request import missing_for_gpu

    if reason := missing_for_gpu(CATALOGUE[MODEL]):
        sys.exit(f"this benchmark needs a GPU: {reason}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
        spec = Path(folder) / "spec.toml"
        spec.write_text(SPEC.format(model=MODEL, **vars(arguments)))
        for size in map(int, arguments.rows.split(",")):
            data = Path(folder) / f"{size}.csv"
            write_data(data, size)
            rows.append(_row(size, {engine: _trained(engine, spec, data) for engine in ENGINES}))
            data.unlink()
    return rows


def _trained(engine: str, spec: Path, data: Path) -> dict[str, float]:
    out = data.with_name(f"out-{engine}-{data.stem}")
    command = [sys.executable, "-m", "dmls_core.cli", "train", str(spec), str(data), "--out", str(out)]
    done = subprocess.run([*command, "--engine", engine, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["engine"] == engine
    return {**result["seconds"], "score": result["score"]}


def _row(rows: int, found: dict[str, dict[str, float]]) -> Row:
    row: Row = {"rows": rows}
    for phase in ("load", "search", "refit", "total"):
        row |= {f"{engine} {phase} s": found[engine][phase] for engine in ENGINES}
    row |= {f"{engine} score": found[engine]["score"] for engine in ENGINES}
    spent = {engine: found[engine]["search"] + found[engine]["refit"] for engine in ENGINES}
    return row | {"GPU wins": spent["cpu"] / spent["gpu"]}


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--rows", "10000,50000,100000,500000", "numbers of rows, separated by commas"),
        ("--trials", 10, "trials of each search"),
        ("--trees", 200, "largest number of trees"),
        ("--depth", 16, "largest depth"),
    )
