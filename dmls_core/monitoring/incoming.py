"""Read new data as it comes: a column that is missing or a value that is no number is a finding, no error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.encoder import category_text
from dmls_core.data.files import Files
from dmls_core.data.limits import DataLimits
from dmls_core.data.source import Look
from dmls_core.data.table import Table, TableColumn
from dmls_core.data.texts import Texts
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.monitoring.profile import Column, Profile, Values


@dataclass(frozen=True, slots=True)
class Incoming:
    """New data.

    Attributes:
        rows: those in which any column of the model has a value.
        values: the model's columns that are there: features of all rows, and the target of those rows where
            it is known.
    """

    rows: int
    values: tuple[Values, ...]

    def table(self) -> Table | None:
        """Return the features as the encoder takes them; None if one is absent."""
        features = [column for column in self.values if column.role == "feature"]
        if not features:
            return None
        matrix = np.stack([column.data for column in features], axis=1).astype(np.float32)
        columns = tuple(TableColumn(column.name, column.texts) for column in features)
        return Table(columns, matrix, "", np.zeros(0))


def read_incoming(paths: Sequence[Path], baseline: Profile, limits: DataLimits | None = None) -> Incoming:
    """Read the columns that the baseline knows.

    What is no number in a column of numbers counts as missing. Columns that the model does not use are not
    read.

    Args:
        paths: CSV or Parquet files, read one below the other.
        baseline: what the model was trained on.
        limits: bounds on the data; those of the environment if None.

    Raises:
        DataError: a file cannot be read, or holds no feature of the model.
    """
    files = Files(paths, None, limits or DataLimits.from_environment())
    wanted = [column for column in baseline.columns if column.role != "prediction"]
    names = [_usable(source.names, source.path.name, wanted) for source in files.sources]
    looks = files.looks([column.name for column in wanted])
    there = [
        column
        for column in wanted
        if all(column.name in found for found in names) and looks[column.name] != "unusable"
    ]
    if not any(column.role == "feature" for column in there):
        raise DataError(
            ValidationIssue(
                "the data has no feature of the model",
                file=paths[0].name,
                found=", ".join(files.sources[0].names[:20]),
                expected=", ".join([column.name for column in wanted if column.role == "feature"][:20]),
                hint="give the columns that the model was trained on, under the same names",
            )
        )
    frame = files.read({column.name: _type(column, looks[column.name]) for column in there})
    if len(there) > 1:  # a blank line of a CSV is no row
        frame = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    return Incoming(frame.height, tuple(_known(_values(frame[column.name], column)) for column in there))


def _known(values: Values) -> Values:
    """Leave out the rows whose target is not known yet: labels come late. Training leaves them out, too."""
    return replace(values, data=values.data[~np.isnan(values.data)]) if values.role == "target" else values


def _usable(names: Sequence[str], file: str, wanted: Sequence[Column]) -> set[str]:
    """Return a file's columns.

    Raises:
        DataError: one that the model uses comes twice.
    """
    twice = [column.name for column in wanted if names.count(column.name) > 1]
    if twice:
        hint = "rename one of them"
        raise DataError(
            [
                ValidationIssue("the column is there more than once", file=file, key=n, hint=hint)
                for n in twice
            ]
        )
    return set(names)


def _type(column: Column, look: Look) -> pl.DataType:
    if column.kind == "category" or look in ("time", "category", "text"):
        return pl.Categorical()
    return pl.Float64() if column.role == "target" else pl.Float32()


def _values(series: pl.Series, column: Column) -> Values:
    if column.kind == "number":
        return Values(column.name, column.role, _numbers(series))
    texts = series.cast(pl.String)
    spelled = {text: category_text(text) for text in texts.unique().drop_nulls().to_list()}
    categories = tuple(sorted({text for text in spelled.values() if text is not None}))
    position = {text: float(code) for code, text in enumerate(categories)}
    codes = pl.Series([position.get(text or "") for text in spelled.values()], dtype=pl.Float64)
    data = texts.replace_strict(
        pl.Series(list(spelled), dtype=pl.String), codes, default=None, return_dtype=pl.Float64
    )
    return Values(column.name, column.role, _array(data), categories)


def _numbers(series: pl.Series) -> NDArray[np.floating]:
    if not series.dtype.is_numeric():
        # Each distinct text is read once; what is no number has none, and is missing.
        frame = Texts.of(series).frame.with_columns(
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
    found: NDArray[np.floating] = series.fill_null(float("nan")).to_numpy()
    return found
