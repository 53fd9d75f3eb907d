"""Does what is called valid train? Mutated tables, each checked by ``dmls validate`` and then trained.

The tables are those that scikit-learn and Plotly ship. Each file has a mutation that real files have. Of the
refused files, ``cell`` counts those whose messages name line and column; ``line``, ``column`` and ``file``
those where no single cell is to blame, and the message names that much and a remedy. ``nowhere`` counts other
refusals, ``failed`` files that were called valid and did not train (all of ``dmls train`` with one trial but
the Data Docs): both should be 0. To save an interpreter per file, one sandbox worker checks all files, and
the validation that runs beside a trainer runs in its process.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd

from dmls_core import sandbox
from dmls_core.cli.spec_commands import check_files
from dmls_core.data.validation import Validation, ValidationOutcome, validate
from dmls_core.errors import UserError, ValidationIssue
from dmls_core.intake.schema_inference import infer_file_schema
from dmls_core.spec import Spec
from dmls_core.spec.toml_io import toml_text
from dmls_core.training import background_validation
from dmls_core.training.request import TrainRequest
from dmls_core.training.run import train
from tests.bench.mutations import MUTATIONS, Made, tables
from tests.bench.report import Row, run


def by_hand(file: str, target: str, task: str) -> dict[str, Any]:
    """Return the spec of a user who names the target and nothing else."""
    known = file.endswith((".csv", ".parquet"))
    return {
        "model": "random-forest-classifier" if task == "classification" else "random-forest-regressor",
        "columns": {"target": target},
        **({} if known else {"data": {"path": file}}),
    }


def place(issues: Sequence[ValidationIssue]) -> str:
    """Return the least precise of the ``PLACES`` that the issues name."""

    def one(issue: ValidationIssue) -> str:
        # A column without a name is named by its position.
        column = issue.key.removeprefix("columns") or re.match(r"column \d+ ", issue.message)
        if issue.line and column:
            return "cell"
        if not issue.hint:
            return "nowhere"
        return "line" if issue.line else "column" if column else "file" if issue.file else "nowhere"

    # An issue such as "3 more rows have a wrong length" follows those that name their places.
    return max((one(issue) for issue in issues if " more " not in issue.message), key=PLACES.index)


PLACES = ("cell", "line", "column", "file", "nowhere")


class InThisProcess:
    """A ``ValidationProcess`` without a process."""

    def __init__(self, spec: Spec, data: Sequence[Path], out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        validate(json.loads(spec.canonical()), list(map(str, data)), str(out))
        report = json.loads((out / "validation.json").read_bytes())
        outcomes = tuple(ValidationOutcome(**expectation) for expectation in report["expectations"])
        self.verdict = Validation(report["success"], outcomes, report["seconds"])
        self.finished = True

    def result(self, _timeout: float | None = None) -> Validation:
        """Return the result."""
        return self.verdict

    def search_ended(self) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing."""


@contextmanager
def few_processes() -> Iterator[None]:
    """Check and validate all files in two processes instead of two for each file."""
    with ExitStack() as stack:
        worker = stack.enter_context(sandbox.Worker())

        def call(function: Callable[..., Any], *args: object, limits: object = None, **options: str) -> Any:
            del limits
            return worker.call(function, *args, **options)

        stack.enter_context(mock.patch.object(sandbox, "run", call))
        stack.enter_context(mock.patch.object(background_validation, "ValidationProcess", InThisProcess))
        stack.enter_context(mock.patch("dmls_core.data.validation._write_docs"))
        yield


def outcome(folder: Path, made: Made, target: str, task: str, drafted: bool) -> tuple[str, str]:
    """Return ``trained``, ``failed``, or the place that a refusal names; and the message."""
    data, spec_file = folder / made[0], folder / "spec.toml"
    data.write_bytes(made[1])
    try:
        document = infer_file_schema(data)["document"] if drafted else by_hand(made[0], target, task)
        spec_file.write_text(toml_text({**document, "n_trials": 1, "n_estimators": {"value": 5}}))
        check_files(spec_file, [data])
    except UserError as error:
        return place(error.issues), str(error)
    request = TrainRequest(str(spec_file), (str(data),), str(folder / "run"))
    try:
        train(request, progress=lambda _: None)
    except Exception as error:  # noqa: BLE001 - any failure is a finding
        return "failed", f"{type(error).__name__}: {error}"
    return "trained", ""


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Check every file, and sum up by mutation."""
    known, names = tables(), list(MUTATIONS)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    messages: dict[str, str] = {}
    for number in range(arguments.files):
        random_ = random.Random(arguments.seed * 100_003 + number)
        name, table = names[number % len(names)], sorted(known)[number // len(names) % len(known)]
        drafted = random_.random() < 0.5
        frame = known[table]
        target = str(frame.columns[-1])
        task = "regression" if pd.api.types.is_float_dtype(frame[target]) else "classification"
        with tempfile.TemporaryDirectory() as folder:
            state, message = outcome(Path(folder), MUTATIONS[name](frame, random_), target, task, drafted)
        counts[name][state] += 1
        print(f"{number}: {name}, {table}: {state} {message}", file=sys.stderr, flush=True)
        if message and (state == "failed" or name not in messages):
            messages[name] = message
    states = ("trained", *PLACES, "failed")
    rows: list[Row] = [{"mutation": name, **{s: found[s] for s in states}} for name, found in counts.items()]
    rows.append({"mutation": "all", **{s: sum(found[s] for found in counts.values()) for s in states}})
    return {
        "files": rows,
        "messages": [{"mutation": k, "message": v.split("\n")[0][:240]} for k, v in messages.items()],
    }


if __name__ == "__main__":
    with few_processes():
        run(__doc__, measure, ("--files", 300, "files"), ("--seed", 0, "seed of the mutations"))
