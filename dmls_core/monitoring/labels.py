"""Labels that come late: files of true targets, and the logged answers that they belong to.

A file of labels has the columns ``request_id``, ``row`` (where requests have several rows) and the target's.
Its rows meet those of the inference log that have the same request id and row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.encoder import MISSING, category_text
from dmls_core.data.files import Files
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits
from dmls_core.spec.label_rules import REQUEST, ROW

MAX_ROWS = 5_000_000
"""Rows of a file of labels."""

BATCH_ROWS = 200_000
"""Logged answers that labels are looked up in at a time, but for the last file's."""

LOG = "dmls."
"""How the columns of the inference log begin that are not the user's."""

PROBABILITY = f"{LOG}probability."
TARGET, SINGLE, VERSION, PREDICTION = "target", "single", "version", "prediction"
KEYS = (REQUEST, ROW)


@dataclass(frozen=True, slots=True)
class Met:
    """Labels that met logged answers.

    Attributes:
        labels: distinct ones that were read.
        frame: a row for each that met an answer: ``target``, ``version``, ``prediction``, and the columns of
            probabilities under the log's names.
        several: request ids without a row whose requests had several rows: not known which is meant.
        ambiguous: labels whose request id and row belong to different answers.
    """

    labels: int
    frame: pl.DataFrame
    several: int = 0
    ambiguous: int = 0

    @property
    def versions(self) -> list[tuple[int, int]]:
        """The versions that answered, in Triton's repository, and their rows; the newest first."""
        counted = self.frame.group_by(VERSION).len().sort(VERSION, descending=True)
        return [(int(version), int(rows)) for version, rows in counted.iter_rows()]

    def pairs(self, version: int, labels: Sequence[str] | None) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return truth and answers of one version, as metrics take them.

        Args:
            version: in Triton's repository.
            labels: the version's classes; None for a regression.

        Returns:
            Codes of classes, where one that the version does not know has the code ``len(labels)``, and
            probabilities of shape (n_rows, n_classes); or values and values.
        """
        own = self.frame.filter(pl.col(VERSION) == version)
        if labels is None:
            own = own.with_columns(pl.col(TARGET, PREDICTION).cast(pl.Float64, strict=False)).drop_nulls(
                [TARGET, PREDICTION]
            )
            return own[TARGET].to_numpy(), own[PREDICTION].to_numpy()
        columns = [PROBABILITY + label for label in labels]
        if not set(columns) <= set(own.columns):  # the log of another model under this number
            return np.zeros(0, np.int64), np.zeros((0, len(labels)), np.float32)
        own = own.drop_nulls(columns)
        codes = {category_text(label): code for code, label in enumerate(labels)}
        texts = own[TARGET].unique()
        known = pl.Series([codes.get(category_text(text), len(labels)) for text in texts], dtype=pl.Int64)
        truth = own[TARGET].replace_strict(texts, known, return_dtype=pl.Int64)
        return truth.to_numpy(), own.select(columns).to_numpy().astype(np.float32)


def read_labels(path: Path, target: str, *, numbers: bool, data_format: str | None = None) -> pl.DataFrame:
    """Read a file of labels; rows without an id or a target are left out, their truth is not known yet.

    Args:
        path: CSV or Parquet.
        target: the target's column.
        numbers: whether it holds numbers, rather than classes.
        data_format: of a file whose name does not tell.

    Returns:
        Columns ``request_id``, ``row`` (0 where the file says nothing), ``target`` (a text) and ``single``:
        whether the file says nothing of rows.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    limits = DataLimits.from_environment()
    known = path.suffix.lower() in (".csv", ".parquet")
    files = Files([path], None if known else data_format, replace(limits, rows=min(limits.rows, MAX_ROWS)))
    names = files.sources[0].names
    _check_columns(path.name, names, target)
    text = pl.Categorical()
    frame = files.read({REQUEST: text, target: text}).cast(pl.String).rename({target: TARGET})
    rows: pl.Series | pl.Expr = pl.lit(0)
    if ROW in names:
        found = files.integers(ROW)
        if found is None or found.null_count() or (found.min() or 0) < 0:  # type: ignore[operator]
            expected = "a whole number from 0, as the log counts the rows of a request"
            raise DataError(
                ValidationIssue(
                    "has a row that is no number of a row", file=path.name, key=ROW, expected=expected
                )
            )
        rows = found
    frame = frame.with_columns(rows.cast(pl.Int64).alias(ROW), pl.lit(ROW not in names).alias(SINGLE))
    frame = frame.with_columns(pl.col(REQUEST, TARGET).str.strip_chars()).filter(
        pl.col(REQUEST).is_not_null() & (pl.col(REQUEST) != "") & ~pl.col(TARGET).is_in(list(MISSING))
    )
    if numbers:
        wrong = frame.filter(pl.col(TARGET).cast(pl.Float64, strict=False).is_null())[TARGET]
        if len(wrong):
            raise DataError(
                ValidationIssue(
                    "is not a number", file=path.name, key=target, found=wrong[0][:80], expected="a number"
                )
            )
    return frame.select(*KEYS, TARGET, SINGLE)


def _check_columns(file: str, names: Sequence[str], target: str) -> None:
    """Raise DataError where a column is missing, or comes twice."""
    issues = [
        ValidationIssue(
            f"the file of labels has no column {name}",
            file=file,
            found=", ".join(names[:20]),
            expected=f"{REQUEST}, {target}, and {ROW} where requests have several rows",
        )
        for name in (REQUEST, target)
        if name not in names
    ]
    issues += [
        ValidationIssue("the column is there more than once", file=file, key=name, hint="rename one of them")
        for name in (REQUEST, ROW, target)
        if names.count(name) > 1
    ]
    if issues:
        raise DataError(issues)


def meet(labels: Sequence[pl.DataFrame], logged: Iterable[Path]) -> Met:
    """Find the logged answers that labels belong to.

    No more is kept than two answers of each label, whatever the log holds.

    Args:
        labels: as ``read_labels`` returns them, the oldest first: of two labels of one row the later counts.
        logged: Parquet files of the log, the newest first; no more are taken once all labels have met.
    """
    wanted = pl.concat(labels).unique(KEYS, keep="last", maintain_order=True)
    ids, alone = wanted.select(REQUEST).unique(), wanted.filter(SINGLE)[REQUEST].implode()
    found: pl.DataFrame | None = None
    several: set[str] = set()
    for answers in _batches(logged):
        hits = answers.join(ids, on=REQUEST, how="semi")
        beyond = hits.filter((pl.col(ROW) > 0) & pl.col(REQUEST).is_in(alone))
        several.update(beyond[REQUEST].unique())
        hits = hits.join(wanted.drop(SINGLE), on=KEYS, how="inner")
        found = hits if found is None else pl.concat([found, hits], how="diagonal_relaxed")
        found = found.unique([*KEYS, VERSION, PREDICTION]).group_by(KEYS).head(2)
        if found.height >= wanted.height and found.select(KEYS).n_unique() == wanted.height:
            break
    if found is None:
        return Met(wanted.height, pl.DataFrame(schema={VERSION: pl.Int64, TARGET: pl.String}), len(several))
    found = found.filter(~pl.col(REQUEST).is_in(list(several)))
    met = found.filter(pl.len().over(KEYS) == 1)
    ambiguous = found.filter(pl.len().over(KEYS) > 1).select(KEYS).n_unique()
    return Met(wanted.height, met.drop(KEYS), len(several), ambiguous)


def _batches(logged: Iterable[Path]) -> Iterator[pl.DataFrame]:
    """Yield the answers in files of the log, some files together: each look-up of labels costs the same."""
    waiting: list[pl.DataFrame] = []
    for path in logged:
        answers = _answers(path)
        if answers is not None:
            waiting.append(answers)
        if sum(frame.height for frame in waiting) >= BATCH_ROWS:
            yield pl.concat(waiting, how="diagonal_relaxed")
            waiting = []
    if waiting:
        yield pl.concat(waiting, how="diagonal_relaxed")


def _answers(path: Path) -> pl.DataFrame | None:
    """Return the answers in one file of the log; None where it holds none."""
    own = {LOG + name: name for name in (*KEYS, VERSION, PREDICTION)}
    scan = pl.scan_parquet(path, glob=False)
    names = scan.collect_schema().names()
    if not own.keys() <= set(names):
        return None
    probabilities = [name for name in names if name.startswith(PROBABILITY)]
    return (
        scan.select(*own, *probabilities)
        .rename(own)
        .with_columns(pl.col(ROW, VERSION).cast(pl.Int64), pl.col(REQUEST).cast(pl.String).str.strip_chars())
        .collect()
    )
