"""The functions that the monitor calls in a sandbox: each reads users' files and returns JSON data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dmls_core import sandbox

HINT = f"{sandbox.HINT}; if it is intact, raise [resources] memory"

_MAX_VERSIONS = 10
"""Versions evaluated per monitor run, the newest ones with labeled predictions."""


def compare_files(model: str, files: list[str], threshold: float, options: dict[str, Any]) -> dict[str, Any]:
    """Compare files, written as ``[data]`` says, with a baseline; return a ``DriftResult`` as JSON data."""
    from dmls_core.data.formats.conversion import convert_all
    from dmls_core.monitoring.new_data import check_files

    return asdict(
        check_files(
            Path(model),
            list(map(Path, convert_all(files, options, f"{model}/converted"))),
            threshold,
        )
    )


def convert_labels(file: str, out: str, target: str, numbers: bool, options: dict[str, Any]) -> None:
    """Read a label file, written as ``[data]`` says, and write its labels to ``out`` as Parquet."""
    from dmls_core.monitoring.delayed_labels import read_labels

    read_labels(Path(file), target, numbers=numbers, options=options).write_parquet(out)


def evaluate_versions(files: list[str]) -> dict[str, Any]:
    """Join labels, oldest first, with the inference log, and evaluate each version that predicted.

    Asks the caller for the log's files one by one (``{"logged": true}`` -> path or null), and for the
    ``result.json`` of each version (``{"version": 3}`` -> object or null).
    """
    import polars as pl

    from dmls_core.evaluate.decay import TrainingScore, evaluate_decay
    from dmls_core.monitoring.delayed_labels import join_labels

    join = join_labels([pl.read_parquet(file, glob=False) for file in files], _log_files())
    evaluations = []
    for version, _ in join.versions[:_MAX_VERSIONS]:
        result = sandbox.ask({"version": version})
        if result is not None:
            trained = TrainingScore.from_result(result)
            truth, predictions = join.truth_and_predictions(version, trained.labels)
            evaluations.append((version, evaluate_decay(trained, truth, predictions).as_json()))
    return {
        "labels": join.labels,
        "matched": join.frame.height,
        "several": join.several,
        "ambiguous": join.ambiguous,
        "evaluations": evaluations,
    }


def _log_files() -> Iterator[Path]:
    while (path := sandbox.ask({"logged": True})) is not None:
        yield Path(path)
