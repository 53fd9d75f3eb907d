"""CPU seconds and peak memory of the steps that look at the data, on a grid of rows and columns.

Run it with ``python tests/bench/validation.py``; ``--against REVISION`` measures another commit beside the
tree. Each step is a process of its own; one over ``--limit`` CPU seconds is ended and shown as ``>``.
``read`` is the trainer's reader; ``validation`` reads the file itself, checks it and writes the Data Docs;
``verdict`` is the time until the result is known. ``report`` is the diagnostics and the page of a trained
model. The budget of validation, profile and report together is twice the reading plus 3 s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

STEPS = ("imports", "read", "validation", "profile", "report", "inference")
SPEC = """model = "random-forest-classifier"
n_trials = 1
[columns]
target = "y"
[search]
folds = 2
[n_estimators]
value = 3
[max_depth]
value = 3
"""


def measure(arguments: argparse.Namespace) -> list[dict]:
    """Measure each size at each revision."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as name:
        folder = Path(name)
        with _trees(arguments.against, folder) as trees:
            for size in arguments.grid.split(","):
                height, width = map(int, size.split("x"))
                data = folder / f"{size}.{arguments.format}"
                write_data(data, height, width)
                for revision, tree in trees.items():
                    steps = {step: _measured(step, data, tree, arguments.limit) for step in STEPS}
                    rows.append(_row(height, width, data.stat().st_size, revision, steps))
                data.unlink()
    return rows


@contextmanager
def _trees(against: str, folder: Path):
    root = Path(__file__).resolve().parents[2]
    if not against:
        yield {"tree": root}
        return
    other = folder / "other"
    git = ["git", "-C", str(root), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(other), against], check=True)
    try:
        yield {against: other, "tree": root}
    finally:
        subprocess.run([*git, "remove", "--force", str(other)], check=True)


def _measured(step: str, data: Path, tree: Path, limit: int) -> dict[str, float] | None:
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as out:
        command = [sys.executable, __file__, "--one", step, str(data), out, str(limit)]
        environment = os.environ | {"PYTHONPATH": str(tree)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tree)
        if done.returncode == -signal.SIGKILL:
            return None
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])


def _row(rows: int, columns: int, size: int, revision: str, steps: dict) -> dict:
    bare = steps["imports"]
    row = {"rows": rows, "columns": columns, "file MB": size / 2**20, "revision": revision}
    for step, figures in steps.items():
        if step != "imports":
            added = 0.0 if step == "validation" else bare["cpu"]
            row[f"{step} CPU s"] = figures["cpu"] - added if figures else ">"
            row[f"{step} MB"] = figures["peak"] if figures else ">"
    validation = steps["validation"]
    row["verdict s"] = validation["verdict"] if validation else ">"
    if steps["read"]:
        row["budget s"] = 2 * row["read CPU s"] + 3
    spent = [row[f"{step} CPU s"] for step in ("validation", "profile", "report")]
    row["spent s"] = ">" if ">" in spent else sum(spent)
    return row


def one(step: str, data: Path, out: Path) -> dict[str, float]:
    """Measure one step in this process."""
    from dmls_core.data.table.reader import read_table
    from dmls_core.data.validation import validate
    from dmls_core.intake.schema_inference import infer_file_schema
    from dmls_core.models import CATALOGUE
    from dmls_core.monitoring.profile import profile_table
    from dmls_core.spec import parse_spec

    (out / "spec.toml").write_text(SPEC)
    spec = parse_spec(SPEC.encode(), CATALOGUE)
    verdict = 0.0
    started, begun = time.process_time(), time.perf_counter()
    match step:
        case "read":
            read_table([data], spec.columns, spec.task)
        case "validation":
            started = 0.0
            (out / "search-ended").touch()  # the Data Docs of a large table wait for it
            validate(json.loads(spec.canonical()), [str(data)], str(out))
            verdict = json.loads((out / "validation.json").read_bytes())["seconds"]
        case "profile":
            table = read_table([data], spec.columns, spec.task)
            started = time.process_time()
            profile_table(table)
        case "report":
            spent = _report(out, data)
            started = time.process_time() - spent
        case "inference":
            infer_file_schema(data)
    cpu = time.process_time() - started
    return {"cpu": cpu, "wall": time.perf_counter() - begun, "peak": _peak(), "verdict": verdict}


def _report(out: Path, data: Path) -> float:
    """Train a small model and return the CPU seconds of its diagnostics and its page."""
    from dmls_core.training import TrainRequest, pipeline, train

    spent = [0.0]

    def timed(step):
        def call(*args, **options):
            begun = time.process_time()
            try:
                return step(*args, **options)
            finally:
                spent[0] += time.process_time() - begun

        return call

    pipeline.examine_model, pipeline.write_report = map(
        timed, (pipeline.examine_model, pipeline.write_report)
    )
    train(TrainRequest(str(out / "spec.toml"), (str(data),), str(out / "run")), progress=lambda _: None)
    return spent[0]


def _peak() -> float:
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")
    )
    return int(line.split()[1]) / 1024


def write_data(path: Path, rows: int, columns: int) -> None:
    """Write numbers of four digits, some missing, and a last column of two classes, block by block."""
    import numpy as np
    import polars as pl

    draw = np.random.default_rng(1)
    step = max(1, 20_000_000 // columns)
    frames = []
    for start in range(0, rows, step):
        values = draw.normal(size=(min(step, rows - start), columns - 1)).astype(np.float32).round(4)
        values[draw.random(len(values)) < 0.01, 0] = np.nan
        classes = (values[:, 1:4].sum(axis=1) > 0).astype(int)
        frame = pl.DataFrame(values, schema=[f"x{column}" for column in range(columns - 1)])
        frame = frame.fill_nan(None).with_columns(y=pl.Series([f"class {code}" for code in classes]))
        if path.suffix == ".csv":
            with path.open("ab") as file:
                frame.write_csv(file, include_header=start == 0, float_precision=4)
        else:
            frames.append(frame)
    if frames:
        pl.concat(frames).write_parquet(path)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[5]), int(sys.argv[5])))
        print(json.dumps(one(sys.argv[2], *map(Path, sys.argv[3:5]))))
    else:  # above, PYTHONPATH says which tree is measured
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        from tests.bench.report import run

        run(
            __doc__,
            measure,
            (
                "--grid",
                "900x54,100000x54,500000x54,2000x2500,2000x5000,2000x10000",
                "rows x columns, by commas",
            ),
            ("--against", "", "another revision to measure in the same run"),
            ("--limit", 60, "CPU seconds after which a step is ended"),
            ("--format", "csv", "csv or parquet"),
        )
