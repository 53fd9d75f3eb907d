"""Delayed labels: files with the true targets of logged predictions, joined with the inference log.

A label file has the columns ``request_id``, ``row`` (if requests have several rows) and the target's column.
A label belongs to the logged prediction with the same request id and row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.encoder import MISSING, category_text
from dmls_core.data.formats.conversion import converted
from dmls_core.data.formats.data_files import DataFiles
from dmls_core.data.formats.names import format_of
from dmls_core.data.formats.parquet_source import reading
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.monitoring.inference_log import COLUMN_PREFIX
from dmls_core.settings import DataLimits
from dmls_core.spec.column_rules import REQUEST, ROW

_MAX_ROWS = 5_000_000

_BATCH_ROWS = 200_000
"""Logged predictions that are joined with the labels at a time, plus those of one file."""

_PROBABILITY = f"{COLUMN_PREFIX}probability."
TARGET, SINGLE, VERSION, PREDICTION = "target", "single", "version", "prediction"
_KEYS = (REQUEST, ROW)


@dataclass(frozen=True, slots=True)
class LabelJoin:
    """Labels joined with logged predictions.

    Attributes:
        labels: number of distinct labels.
        frame: one row for each label that belongs to a prediction: ``target``, ``version``, ``prediction``,
            and the columns of probabilities with their names in the log.
        several: labels without a row number whose requests had several rows.
        ambiguous: labels whose request id and row belong to different predictions.
    """

    labels: int
    frame: pl.DataFrame
    several: int = 0
    ambiguous: int = 0

    @property
    def versions(self) -> list[tuple[int, int]]:
        """Versions in Triton's repository and their number of labels, newest first."""
        counted = self.frame.group_by(VERSION).len().sort(VERSION, descending=True)
        return [(int(version), int(rows)) for version, rows in counted.iter_rows()]

    def truth_and_predictions(
        self, version: int, labels: Sequence[str] | None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the true and predicted targets of one version in Triton's repository, as metrics take them.

        For a classification: class codes of shape (n_rows,), ``len(labels)`` for a class that the version
        does not know, and probabilities of shape (n_rows, n_classes). For a regression: values and values.
        """
        rows = self.frame.filter(pl.col(VERSION) == version)
        if labels is None:
            rows = rows.with_columns(pl.col(TARGET, PREDICTION).cast(pl.Float64, strict=False)).drop_nulls(
                [TARGET, PREDICTION]
            )
            return rows[TARGET].to_numpy(), rows[PREDICTION].to_numpy()
        columns = [_PROBABILITY + label for label in labels]
        if not set(columns) <= set(rows.columns):  # another model was logged under this version
            return np.zeros(0, np.int64), np.zeros((0, len(labels)), np.float32)
        rows = rows.drop_nulls(columns)
        codes = {category_text(label, MISSING): code for code, label in enumerate(labels)}
        texts = rows[TARGET].unique()
        label_codes = pl.Series(
            [codes.get(category_text(text, MISSING), len(labels)) for text in texts], dtype=pl.Int64
        )
        truth = rows[TARGET].replace_strict(texts, label_codes, return_dtype=pl.Int64)
        return truth.to_numpy(), rows.select(columns).to_numpy().astype(np.float32)


def read_labels(
    path: Path, target: str, *, numbers: bool, options: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """Read a label file, without the rows that have no request id or no target yet.

    The result has the columns ``request_id``, ``row`` (0 without one), ``target`` (a text) and ``single``
    (whether the file has no column ``row``). ``options`` are ``[data]`` as JSON data; its keys on the
    header and the sheet do not apply. A file that cannot be read, or lacks a column, raises DataError.
    """
    headed = {**(options or {}), "header": True, "skip_rows": 0, "sheet": None}
    with converted([path], headed) as paths:
        missing = MISSING.difference(() if numbers else headed.get("not_missing", ()))
        return _read_labels(
            paths[0], target, numbers=numbers, data_format=headed.get("format"), missing=missing
        )


def _read_labels(
    path: Path, target: str, *, numbers: bool, data_format: str | None, missing: Collection[str]
) -> pl.DataFrame:
    limits = DataLimits.from_environment()
    by_name = format_of(path.name)
    files = DataFiles([path], by_name or data_format, replace(limits, rows=min(limits.rows, _MAX_ROWS)))
    names = files.sources[0].names
    _check_columns(path.name, names, target)
    text = pl.Categorical()
    frame = files.read({REQUEST: text, target: text}).cast(pl.String).rename({target: TARGET})
    rows: pl.Series | pl.Expr = pl.lit(0)
    if ROW in names:
        positions = files.integers(ROW)
        if positions is None or positions.null_count() or (positions.min() or 0) < 0:  # type: ignore[operator]
            expected = "an integer from 0: the position of the row in its request"
            raise DataError(
                ValidationIssue("contains an invalid row number", file=path.name, key=ROW, expected=expected)
            )
        rows = positions
    frame = frame.with_columns(rows.cast(pl.Int64).alias(ROW), pl.lit(ROW not in names).alias(SINGLE))
    frame = frame.with_columns(pl.col(REQUEST, TARGET).str.strip_chars()).filter(
        pl.col(REQUEST).is_not_null() & (pl.col(REQUEST) != "") & ~pl.col(TARGET).is_in(list(missing))
    )
    if numbers:
        wrong = frame.filter(pl.col(TARGET).cast(pl.Float64, strict=False).is_null())[TARGET]
        if len(wrong):
            raise DataError(
                ValidationIssue(
                    "is not a number", file=path.name, key=target, found=wrong[0][:80], expected="a number"
                )
            )
    return frame.select(*_KEYS, TARGET, SINGLE)


def _check_columns(file: str, names: Sequence[str], target: str) -> None:
    """Raise DataError if a column is missing or appears more than once."""
    counts = Counter(names)
    issues = [
        ValidationIssue(
            f"the label file has no column {name}",
            file=file,
            found=", ".join(names[:20]),
            expected=f"{REQUEST}, {target}, and {ROW} if requests have several rows",
        )
        for name in (REQUEST, target)
        if name not in counts
    ]
    issues += [
        ValidationIssue("the column appears more than once", file=file, key=name, hint="rename one of them")
        for name in (REQUEST, ROW, target)
        if counts[name] > 1
    ]
    if issues:
        raise DataError(issues)


def join_labels(labels: Sequence[pl.DataFrame], logged: Iterable[Path]) -> LabelJoin:
    """Find the logged predictions that labels belong to.

    The latest label of a row counts: ``labels`` come oldest first. ``logged`` are Parquet files, newest
    first, consumed until every label has a prediction. Memory is bounded by two predictions per label,
    whatever the size of the log.
    """
    labelled = pl.concat(labels).unique(_KEYS, keep="last", maintain_order=True)
    ids, alone = labelled.select(REQUEST).unique(), labelled.filter(SINGLE)[REQUEST].implode()
    matches: pl.DataFrame | None = None
    several: set[str] = set()
    for predictions in _batches(logged):
        hits = predictions.join(ids, on=REQUEST, how="semi")
        beyond = hits.filter((pl.col(ROW) > 0) & pl.col(REQUEST).is_in(alone))
        several.update(beyond[REQUEST].unique())
        hits = hits.join(labelled.drop(SINGLE), on=_KEYS, how="inner")
        matches = hits if matches is None else pl.concat([matches, hits], how="diagonal_relaxed")
        matches = matches.unique([*_KEYS, VERSION, PREDICTION]).group_by(_KEYS).head(2)
        if matches.height >= labelled.height and matches.select(_KEYS).n_unique() == labelled.height:
            break
    if matches is None:
        return LabelJoin(
            labelled.height, pl.DataFrame(schema={VERSION: pl.Int64, TARGET: pl.String}), len(several)
        )
    matches = matches.filter(~pl.col(REQUEST).is_in(list(several)))
    unique = matches.filter(pl.len().over(_KEYS) == 1)
    ambiguous = matches.filter(pl.len().over(_KEYS) > 1).select(_KEYS).n_unique()
    return LabelJoin(labelled.height, unique.drop(_KEYS), len(several), ambiguous)


def _batches(logged: Iterable[Path]) -> Iterator[pl.DataFrame]:
    """Yield the predictions of several files at a time: each join has a fixed cost."""
    waiting: list[pl.DataFrame] = []
    for path in logged:
        predictions = _predictions(path)
        if predictions is not None:
            waiting.append(predictions)
        if sum(frame.height for frame in waiting) >= _BATCH_ROWS:
            yield pl.concat(waiting, how="diagonal_relaxed")
            waiting = []
    if waiting:
        yield pl.concat(waiting, how="diagonal_relaxed")


def _predictions(path: Path) -> pl.DataFrame | None:
    """Return the predictions in one file of the log; None if it has none."""
    columns = {COLUMN_PREFIX + name: name for name in (*_KEYS, VERSION, PREDICTION)}
    with reading(path):
        scan = pl.scan_parquet(path, glob=False)
        names = scan.collect_schema().names()
        if not columns.keys() <= set(names):
            return None
        probabilities = [name for name in names if name.startswith(_PROBABILITY)]
        request = pl.col(REQUEST).cast(pl.String).str.strip_chars()
        selected = scan.select(*columns, *probabilities).rename(columns)
        return selected.with_columns(pl.col(ROW, VERSION).cast(pl.Int64), request).collect()
