"""How long a trainer loads data that another one has read, with the cache of matrices.

Run it with ``python tests/bench/matrix_cache.py``. ``load s`` is the phase of that name: fetching, hashing,
reading, splitting and encoding the data, and the imports, which ``bare`` shows alone, on 300 rows. ``read s``
reads the files of the matrix as arrays. ``CPU s`` is that of the trainer without its validation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run
from tests.bench.scaling import write_data

SPEC = """model = "{model}"
n_trials = 1
[columns]
target = "y"
[n_estimators]
value = 2
[max_depth]
value = 3
"""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Train on a few rows, then three times on the same file: without the cache, and twice with it."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as name:
        folder, cache = Path(name), Path(name) / "cache"
        spec, data, few = folder / "spec.toml", folder / "data.csv", folder / "few.csv"
        spec.write_text(SPEC.format(model=arguments.model))
        write_data(few, 300)
        write_data(data, arguments.rows)
        kinds = (
            ("bare", few, ""),
            ("no cache", data, ""),
            ("first", data, str(cache)),
            ("second", data, str(cache)),
        )
        rows = [_trained(kind, spec, file, use) for kind, file, use in kinds]
        begun, size = time.perf_counter(), 0
        for part in (*cache.rglob("train.npy"), *cache.rglob("test.npy")):
            size += len(part.read_bytes())
        read = time.perf_counter() - begun
    return [row | {"matrix MB": size / 2**20, "read s": read} for row in rows]


def _trained(kind: str, spec: Path, data: Path, cache: str) -> Row:
    command = [sys.executable, __file__, "--one", str(spec), str(data), str(spec.parent / kind)]
    environment = os.environ | {"DMLS_CACHE_FOLDER": cache}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return {"data": kind, "file MB": data.stat().st_size / 2**20, **json.loads(done.stdout.splitlines()[-1])}


def one(spec: str, data: str, out: str) -> Row:
    """Train once, in this process."""
    from dmls_core.training import TrainRequest, train

    marks: list[tuple[float, float]] = []
    train(
        TrainRequest(spec, (data,), out),
        progress=lambda line: (
            marks.append((time.perf_counter(), time.process_time()))
            if line.startswith(("loading", "searching"))
            else None
        ),
    )
    (begun, before), (searched, used) = marks
    anonymous = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")
    )
    return {"load s": searched - begun, "CPU s": used - before, "anon MB": int(anonymous.split()[1]) / 1024}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(*sys.argv[2:])))
    else:
        run(
            __doc__,
            measure,
            ("--rows", 500_000, "rows of 54 numbers"),
            ("--model", "random-forest-classifier", "a classifier"),
        )
