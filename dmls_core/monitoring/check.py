"""From a model's folder and files of new data to a comparison."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmls_core.data import Encoder, encode_table
from dmls_core.errors import NotFoundError, ObjectMissingError, PlatformError, ValidationIssue
from dmls_core.monitoring.comparison import compare
from dmls_core.monitoring.drift import Drift
from dmls_core.monitoring.incoming import Incoming, read_incoming
from dmls_core.monitoring.profile import Profile, predicted
from dmls_core.store import Store, layout

BASELINE = "baseline.json"
ENCODER = "encoder.json"
CHECKPOINT = "checkpoint.tl"

PREDICTED_ROWS = 50_000
"""Rows of the new data that the model is asked for its predictions of; of more, as many are drawn."""

Predict = Callable[[Path, NDArray[np.float32]], NDArray[np.float32]]
"""(checkpoint, encoded rows) -> what the model answers, as ``serving.checkpoint.predict`` returns it."""


def fetch_model(store: Store, team: str, job: str, run_key: str, folder: Path) -> Path:
    """Copy what a comparison needs of a run's model to ``folder``; return that folder.

    Raises:
        NotFoundError: the run left no baseline.
    """
    base = layout.run_folder(team, job, run_key) + layout.MODEL
    try:
        for name in (BASELINE, ENCODER, CHECKPOINT):
            store.download(base + name, folder / name)
    except ObjectMissingError as error:
        raise NotFoundError(
            ValidationIssue(
                f"the run {run_key} of {team}/{job} left no baseline to compare with",
                hint="train it again: runs of earlier releases kept none",
            )
        ) from error
    return folder


def check_files(model: Path, paths: Sequence[Path], threshold: float, predict: Predict) -> Drift:
    """Compare files of new data with the baseline of a model.

    Args:
        model: folder with ``baseline.json``, ``encoder.json`` and ``checkpoint.tl``.
        paths: CSV or Parquet files.
        threshold: population stability index from which a column has drifted.
        predict: has the checkpoint predict.

    Raises:
        DataError: the files cannot be read, or hold no feature of the model.
        PlatformError: the baseline is damaged, or of a later release.
    """
    try:
        baseline = Profile.from_json(json.loads((model / BASELINE).read_bytes()))
        encoder = Encoder.from_json(json.loads((model / ENCODER).read_bytes()))
    except ValueError as error:
        raise PlatformError(f"the model's baseline cannot be read: {error}") from error
    incoming = read_incoming(paths, baseline)
    values = {(column.role, column.name): column for column in incoming.values}
    if (rows := _encoded(encoder, incoming)) is not None:
        answers = predicted(predict(model / CHECKPOINT, rows), encoder.target.labels)
        values[answers.role, answers.name] = answers
    return compare(baseline, values, incoming.rows, threshold)


def _encoded(encoder: Encoder, incoming: Incoming) -> NDArray[np.float32] | None:
    """Return rows of the new data as the model takes them; None if it lacks a feature, or has no row."""
    table = incoming.table()
    if table is None or table.feature_names != encoder.feature_names or not table.n_rows:
        return None
    rows = np.arange(table.n_rows)
    if len(rows) > PREDICTED_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, PREDICTED_ROWS, replace=False))
    return encode_table(encoder, table, rows)
