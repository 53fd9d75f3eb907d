"""What a trainer saves if another one on its machine has read the same data, with the cache of matrices.

Run it with ``python tests/bench/matrix_cache.py``; each trainer is a process of its own that stops before its
search. ``hash`` finds the SHA-256 of the file, which trainers with a cache compute once, ``prepare`` is all
that follows until the search starts, without imports, and ``read`` reads the files of the matrix.
``search / read`` compares the CPU seconds of the first two with those of the last. ``added MB`` is the
memory of the process that no file backs, beyond that of its libraries.
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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run
from tests.bench.scaling import write_data

SPEC = """model = "{model}"
n_trials = 2
[columns]
target = "y"
[max_depth]
min = 3
max = 9
"""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Prepare the same file without a cache, then with one."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as name:
        folder = Path(name)
        spec, data = folder / "spec.toml", folder / "data.csv"
        spec.write_text(SPEC.format(model=arguments.model))
        write_data(data, arguments.rows)
        kinds = {
            "no cache": "",
            "first": f"{folder}/cache",
            "second": f"{folder}/cache",
            "third": f"{folder}/cache",
        }
        return [_prepared(kind, spec, data, cache) for kind, cache in kinds.items()]


def _prepared(kind: str, spec: Path, data: Path, cache: str) -> Row:
    command = [sys.executable, __file__, "--one", str(spec), str(data)]
    environment = os.environ | {"DMLS_CACHE_FOLDER": cache}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return {
        "trainer": kind,
        "file MB": data.stat().st_size / 2**20,
        **json.loads(done.stdout.splitlines()[-1]),
    }


def one(spec: str, data: str) -> Row:
    """Prepare a run's data in this process."""
    import polars as pl  # noqa: F401 - imported before the clock starts
    import sklearn.ensemble  # noqa: F401

    from dmls_core.models import CATALOGUE, load_spec
    from dmls_core.training.known_hashes import KnownHashes
    from dmls_core.training.prepare import prepare_models
    from dmls_core.training.request import (
        RequestedModel,
        TrainingJob,
        TrainRequest,
        choose_engine,
        fetch_data,
    )

    parsed = load_spec(Path(spec).read_bytes(), file=spec)
    request, out = TrainRequest(spec, (data,), "out"), Path(spec).parent / "out"
    (asked,) = parsed.models
    model = CATALOGUE[asked.name]
    models = (RequestedModel(model, *choose_engine("cpu", model, asked.hyperparameters)),)
    before, row = _anonymous(), {}
    with _clock("hash", row):
        files = fetch_data(request.data, (), out, KnownHashes.of(request.team))
    with _clock("prepare", row):
        found = prepare_models(TrainingJob(request, parsed, models, "key", files, out, ""))
    row |= {"added MB": _anonymous() - before, "matrix MB": found[0].data.train.nbytes / 2**20 / 0.8}
    matrices = [found[0].data.train, found[0].data.test]
    names = [getattr(matrix, "filename", None) for matrix in matrices]
    with _clock("read", row):
        for name in filter(None, names):
            Path(name).read_bytes()
    ratio = (row["hash CPU s"] + row["prepare CPU s"]) / row["read CPU s"]
    return row | {"search / read": ratio if any(names) else None}


@contextmanager
def _clock(name: str, row: Row) -> Iterator[None]:
    wall, used = time.perf_counter(), time.process_time()
    yield
    row |= {f"{name} s": time.perf_counter() - wall, f"{name} CPU s": time.process_time() - used}


def _anonymous() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


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
