"""Time of each phase of a training run, and the CPU beyond its search, on iris and on 100,000 x 54 rows.

Run it with ``python tests/bench/phases.py``; each case is a trainer of its own.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run
from tests.e2e import data

WIDE = """model = "random-forest-classifier"
n_trials = 2
[columns]
target = "y"
[n_estimators]
min = 10
max = 20
[max_depth]
value = 10
"""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Train on each data set in a process of its own."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as name:
        folder = Path(name)
        (folder / "iris.toml").write_text(data.IRIS)
        (folder / "iris.csv").write_text(data.iris())
        (folder / "wide.toml").write_text(WIDE)
        _write_wide(folder / "wide.csv", arguments.rows)
        for case in ("iris", "wide"):
            command = [sys.executable, __file__, "--one", str(folder), case]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    return rows


def one(folder: Path, case: str) -> Row:
    """Train once; the CPU of search and refit is taken apart from everything else's."""
    from dmls_core.training import TrainRequest, pipeline, train

    spent = {"search": 0.0}

    def timed(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            begun = time.process_time()
            try:
                return step(*args, **options)
            finally:
                spent["search"] += time.process_time() - begun

        return call

    pipeline.search_models, pipeline.refit = timed(pipeline.search_models), timed(pipeline.refit)
    request = TrainRequest(f"{folder}/{case}.toml", (f"{folder}/{case}.csv",), f"{folder}/{case}-out")
    result = train(request, progress=lambda _: None)
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = own.ru_utime + own.ru_stime
    validation = children.ru_utime + children.ru_stime
    return {
        "data": case,
        "rows": result["data"]["rows"],
        **{f"{phase} s": result["seconds"][phase] for phase in result["seconds"]},
        "search CPU s": spent["search"],
        "validation CPU s": validation,
        "beyond search CPU s": cpu - spent["search"] + validation,
        "peak MB": own.ru_maxrss / 1024,
    }


def _write_wide(path: Path, rows: int) -> None:
    draw = random.Random(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{number}" for number in range(54)), "y"])
        for _ in range(rows):
            values = [round(draw.gauss(0, 1), 4) for _ in range(54)]
            writer.writerow([*values, f"class {int(sum(values[:5]) + draw.gauss(0, 1) > 0)}"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(Path(sys.argv[2]), sys.argv[3])))
    else:
        run(__doc__, measure, ("--rows", 100_000, "rows of the wide data set"))
