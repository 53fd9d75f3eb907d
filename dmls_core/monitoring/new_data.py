"""New data for a drift comparison: read files as they come, and compare them with a model's baseline.

A missing column or a text in a column of numbers is a finding of the comparison, not an error.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.encoder import DateFeature, Encoder, category_text
from dmls_core.data.formats.data_files import DataFiles
from dmls_core.data.formats.source import ColumnType
from dmls_core.data.table.columns import DistinctTexts
from dmls_core.data.table.dates import is_date
from dmls_core.data.table.table import Table, TableColumn, encode_table
from dmls_core.errors import DataError, NotFoundError, ObjectMissingError, PlatformError, ValidationIssue
from dmls_core.monitoring.drift import DriftResult, compare
from dmls_core.monitoring.profile import Profile, ProfileColumn, Values, predicted
from dmls_core.serving.formats.base import format_of
from dmls_core.settings import DataLimits
from dmls_core.store import Store, layout

_BASELINE = "baseline.json"
_ENCODER = "encoder.json"
_MODEL_JSON = "model.json"

_PREDICTED_ROWS = 50_000
"""Rows of the new data that the model predicts; a random sample of more."""


def fetch_baseline(store: Store, team: str, job: str, run_key: str, folder: Path) -> Path:
    """Copy the files of a run's model that a comparison needs to ``folder``; return that folder.

    Raises:
        NotFoundError: the run has no baseline.
    """
    base = layout.run_folder(team, job, run_key) + layout.MODEL
    try:
        for name in (_BASELINE, _ENCODER, _MODEL_JSON):
            store.download(base + name, folder / name)
        serving = format_of(json.loads((folder / _MODEL_JSON).read_bytes()), f"the run {run_key}")
        for name in serving.files:
            store.download(base + name, folder / name)
    except ObjectMissingError as error:
        raise NotFoundError(
            ValidationIssue(
                f"the run {run_key} of {team}/{job} has no baseline to compare with",
                hint="train the job again",
            )
        ) from error
    return folder


def check_files(model: Path, paths: Sequence[Path], threshold: float) -> DriftResult:
    """Compare CSV or Parquet files of new data with the baseline of a model.

    The folder ``model`` has what ``fetch_baseline`` copies. A column has drifted
    from the population stability index ``threshold`` on.

    Raises:
        DataError: the files cannot be read, or contain no feature of the model.
        PlatformError: the baseline is damaged, or was written by a later release.
    """
    try:
        baseline = Profile.from_json(json.loads((model / _BASELINE).read_bytes()))
        encoder = Encoder.from_json(json.loads((model / _ENCODER).read_bytes()))
    except ValueError as error:
        raise PlatformError(f"the model's baseline cannot be read: {error}") from error
    dates = [feature for feature in encoder.features if isinstance(feature, DateFeature)]
    data = read_new_data(paths, baseline, dates, not_missing=encoder.not_missing)
    values = {(column.role, column.name): column for column in data.values}
    if (rows := _encoded(encoder, data)) is not None:
        serving = format_of(json.loads((model / _MODEL_JSON).read_bytes()))
        predictions = predicted(serving.load(model)(rows), encoder.target.labels)
        values[predictions.role, predictions.name] = predictions
    return compare(baseline, values, data.rows, threshold)


def _encoded(encoder: Encoder, data: NewData) -> NDArray[np.float32] | None:
    """Return encoded rows of the new data; None if it lacks a feature or has no row."""
    table = data.table(encoder.feature_names)
    if table is None or not table.n_rows:
        return None
    rows = np.arange(table.n_rows)
    if len(rows) > _PREDICTED_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, _PREDICTED_ROWS, replace=False))
    return encode_table(encoder, table, rows)


@dataclass(frozen=True, slots=True)
class NewData:
    """New data, in the columns that the baseline has.

    ``rows`` counts those with a value in any column of the model; the target has only rows in which it is
    known. ``dates`` have the parts of each date, (n_rows, n_parts): they are not compared, but the model
    needs them to predict.
    """

    rows: int
    values: tuple[Values, ...]
    dates: tuple[tuple[DateFeature, NDArray[np.float32]], ...] = ()

    def table(self, names: Sequence[str]) -> Table | None:
        """Return the features ``names`` as a table; None if one is absent."""
        columns: list[TableColumn] = []
        parts: list[NDArray[np.floating]] = []
        features = {column.name: column for column in self.values if column.role == "feature"}
        dates = {date.name: (date, values) for date, values in self.dates}
        for name in names:
            if name in features:
                columns.append(TableColumn(name, features[name].texts))
                parts.append(features[name].data[:, np.newaxis])
            elif name in dates:
                date, values = dates[name]
                columns += [TableColumn(name, date=date)] * len(date.columns)
                parts.append(values)
            else:
                return None
        return Table(tuple(columns), np.hstack(parts).astype(np.float32), "", np.zeros(0))


def read_new_data(
    paths: Sequence[Path],
    baseline: Profile,
    dates: Sequence[DateFeature] = (),
    limits: DataLimits | None = None,
    *,
    not_missing: Collection[str] = (),
) -> NewData:
    """Read ``dates`` and the columns of the baseline from CSV or Parquet files, whose rows are concatenated.

    Other columns are ignored. A text in a column of numbers or dates counts as missing. ``limits`` default to
    those of the environment; ``not_missing`` are those of the encoder. A file that cannot be read, or has no
    feature of the model, raises DataError.
    """
    files = DataFiles(paths, None, limits or DataLimits.from_environment())
    # A date is read as a category is, but compared with nothing.
    as_columns = [ProfileColumn(date.name, "feature", "category", (), (), (), 0, 0, None) for date in dates]
    requested = [*(column for column in baseline.columns if column.role != "prediction"), *as_columns]
    names = [_unique_names(source.names, source.path.name, requested) for source in files.sources]
    column_types = files.column_types([column.name for column in requested])
    present = [
        column
        for column in requested
        if all(column.name in file_names for file_names in names) and column_types[column.name] != "unusable"
    ]
    if not any(column.role == "feature" for column in present):
        raise DataError(
            ValidationIssue(
                "the data contains no feature of the model",
                file=paths[0].name,
                found=", ".join(files.sources[0].names[:20]),
                expected=", ".join([column.name for column in requested if column.role == "feature"][:20]),
                hint="use the column names that the model was trained with",
            )
        )
    frame = files.read({column.name: _type(column, column_types[column.name]) for column in present})
    if len(present) > 1:  # skip blank lines of a CSV
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    return NewData(
        frame.height,
        tuple(
            _without_unknown_targets(_values(frame[column.name], column, not_missing))
            for column in present
            if column not in as_columns
        ),
        tuple((date, _date_parts(frame[date.name], date)) for date in dates if date.name in frame.columns),
    )


def _date_parts(series: pl.Series, date: DateFeature) -> NDArray[np.float32]:
    texts = series.cast(pl.String).to_list()
    valid = {text for text in set(texts) - {None} if is_date(text, date)}
    return replace(date, fill=None).encode([text if text in valid else None for text in texts])


def _without_unknown_targets(values: Values) -> Values:
    """Leave out rows without a target, as training does: labels may be delayed."""
    return replace(values, data=values.data[~np.isnan(values.data)]) if values.role == "target" else values


def _unique_names(names: Sequence[str], file: str, requested: Sequence[ProfileColumn]) -> set[str]:
    """Return the names of a file's columns; raise DataError if it repeats a column of the model."""
    counts = Counter(names)
    twice = [column.name for column in requested if counts[column.name] > 1]
    if twice:
        hint = "rename one of them"
        raise DataError(
            [ValidationIssue("the column appears more than once", file=file, key=n, hint=hint) for n in twice]
        )
    return set(names)


def _type(column: ProfileColumn, column_type: ColumnType) -> pl.DataType:
    if column.kind == "category" or column_type in ("time", "category", "text"):
        return pl.Categorical()
    return pl.Float64() if column.role == "target" else pl.Float32()


def _values(series: pl.Series, column: ProfileColumn, not_missing: Collection[str]) -> Values:
    if column.kind == "number":
        return Values(column.name, column.role, _numbers(series))
    texts = series.cast(pl.String)
    spelled = {text: category_text(text, not_missing) for text in texts.unique().drop_nulls().to_list()}
    categories = tuple(sorted({text for text in spelled.values() if text is not None}))
    position = {text: float(code) for code, text in enumerate(categories)}
    codes = pl.Series([position.get(text or "") for text in spelled.values()], dtype=pl.Float64)
    data = texts.replace_strict(
        pl.Series(list(spelled), dtype=pl.String), codes, default=None, return_dtype=pl.Float64
    )
    return Values(column.name, column.role, _array(data), categories)


def _numbers(series: pl.Series) -> NDArray[np.floating]:
    if not series.dtype.is_numeric():
        # Each distinct text is parsed once; a text that is not a number becomes missing.
        frame = DistinctTexts.of(series).frame.with_columns(
            pl.when(pl.col("stripped").str.to_lowercase() == "true")
            .then(1.0)
            .when(pl.col("stripped").str.to_lowercase() == "false")
            .then(0.0)
            .otherwise(pl.col("number"))
            .alias("number")
        )
        series = series.cast(pl.String).replace_strict(
            frame["text"], frame["number"], default=None, return_dtype=pl.Float64
        )
    return _array(series)


def _array(series: pl.Series) -> NDArray[np.floating]:
    values: NDArray[np.floating] = series.fill_null(float("nan")).to_numpy()
    return values
