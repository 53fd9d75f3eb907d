"""Convert DataFrames and raw values to tensors and JSON requests, and answers to DataFrames.

Of pandas and polars, only the library of the caller's own frame is imported.
"""

from __future__ import annotations

import difflib
import json
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.bad_cells import describe_cells
from dmls_core.data.encoder import (
    MISSING,
    BadCell,
    CategoryFeature,
    CellError,
    Encoder,
    NumberFeature,
    category_text,
    number,
    read_numbers,
)
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.serving.triton.model_config import boolean_columns

TEXT, NUMBER = "TYPE_STRING", "TYPE_FP64"
"""Triton's types of the table endpoint's columns: categories and dates, and numbers."""

Columns = dict[str, NDArray[Any]]


def read_columns(
    frame: Any,  # noqa: ANN401
    data_types: Mapping[str, str],
    version_columns: Sequence[Sequence[str]],
    marks: Sequence[str] = (),
    booleans: Collection[str] | None = None,
) -> Columns:
    """Return the columns of a frame as arrays of float64 or texts, each of shape (n_rows,).

    The frame is a pandas or polars DataFrame, or a mapping of names to values; unknown columns are ignored.
    ``data_types`` has Triton's type of each column, ``version_columns`` the columns of each version that may
    answer; those of one version must be present. ``marks`` are texts of missing numbers; of a text, the
    model knows them. ``booleans`` are the columns of numbers that may hold booleans; None for all.

    Raises:
        DataError: columns are missing, repeated or differ in length, or values are not numbers.
    """
    # A frame's column names may be numbers, which were texts in the CSV of the training.
    keys = _keys(frame)
    names = column_names(frame)
    keys_by_name = dict(zip(names, keys, strict=True))
    lacking = [[name for name in columns if name not in keys_by_name] for columns in version_columns]
    if all(lacking):
        raise DataError([_missing(name, names) for name in lacking[0]])
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1 and name in data_types):
        raise DataError(
            ValidationIssue(f"column {repeated[0]!r} occurs more than once", expected="each column once")
        )
    columns: Columns = {}
    cells: list[BadCell] = []
    more = False
    for name, data_type in data_types.items():
        if name not in keys_by_name:
            continue
        values = _values(frame[keys_by_name[name]])
        if data_type == TEXT:
            columns[name] = _texts(name, values)
            continue
        boolean = booleans is None or name in booleans
        try:
            columns[name] = read_numbers(name, values, marks=marks, booleans=boolean)
        except CellError as error:
            cells, more = [*cells, *error.cells], more or error.more
    if cells:
        all_cells = CellError(cells, more=more)
        raise describe_cells(all_cells) from all_cells
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(ValidationIssue(f"columns differ in length: {lengths}"))
    return columns


def column_names(frame: Any) -> list[str]:  # noqa: ANN401
    """Return the names of a frame's columns as texts."""
    return [str(key) for key in _keys(frame)]


def _keys(frame: Any) -> list[Any]:  # noqa: ANN401
    return list(frame.keys() if isinstance(frame, Mapping) else frame.columns)


def like(frame: Any, columns: Columns) -> Any:  # noqa: ANN401
    """Return columns as a frame of the same library as ``frame``, with its index."""
    library = type(frame).__module__.partition(".")[0]
    if library == "pandas":
        return import_module("pandas").DataFrame(columns, index=frame.index)
    if library == "polars":
        lists = {k: v.tolist() if v.dtype == object else v for k, v in columns.items()}
        texts = {name: import_module("polars").String for name, v in columns.items() if v.dtype == object}
        return import_module("polars").DataFrame(lists, schema_overrides=texts)
    return columns


def table_tensors(encoder: Encoder, columns: Mapping[str, list[Any]]) -> Columns:
    """Return raw values as the inputs of a table endpoint, each of shape (n_rows, 1)."""
    data_types = {
        feature.name: NUMBER if isinstance(feature, NumberFeature) else TEXT for feature in encoder.features
    }
    marks = encoder.features[0].marks
    tensors = read_columns(columns, data_types, [encoder.feature_names], marks, boolean_columns(encoder))
    return {name: values.reshape(-1, 1) for name, values in tensors.items()}


def table_request(encoder: Encoder, rows: Mapping[str, Sequence[Any]]) -> str:
    """Return raw values by column as a request to the table endpoint: JSON of the open inference protocol.

    Missing numbers become ``NaN``, which Triton reads, missing texts ``""``.
    """
    inputs = []
    for feature in encoder.features:
        values: list[Any]
        if isinstance(feature, NumberFeature):
            datatype, values = "FP64", [number(value) for value in rows[feature.name]]
        else:
            not_missing = feature.not_missing if isinstance(feature, CategoryFeature) else ()
            datatype = "BYTES"
            values = [category_text(value, not_missing) or "" for value in rows[feature.name]]
        inputs.append({"name": feature.name, "datatype": datatype, "shape": [len(values), 1], "data": values})
    return json.dumps({"inputs": inputs}, ensure_ascii=False)


def forest_request(encoded: Sequence[Sequence[float | None]]) -> str:
    """Return encoded rows (``None``: NaN) as a request to the forest: JSON of the open inference protocol."""
    data = [math.nan if value is None else value for row in encoded for value in row]
    shape = [len(encoded), len(encoded[0]) if encoded else 0]
    return json.dumps({"inputs": [{"name": "input__0", "datatype": "FP32", "shape": shape, "data": data}]})


def _missing(name: str, names: Sequence[str]) -> ValidationIssue:
    close = difflib.get_close_matches(name, names, 1, 0.6)
    return ValidationIssue(
        f"column {name!r} is missing",
        hint=f"is it {close[0]!r}?" if close else "the model was trained with it",
    )


def _values(column: Any) -> NDArray[Any]:  # noqa: ANN401
    """Return a column as an array; NumPy must not guess one type for a list of mixed ones."""
    if hasattr(column, "dtype"):
        return np.asarray(column)
    items = list(column)
    values = np.empty(len(items), dtype=object)
    values[:] = items
    return values


def _texts(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return categories as the encoder spells them; a missing one is the empty text.

    Whether a text such as ``NA`` is missing is for the version that answers to say.
    """
    texts = np.array([category_text(value, MISSING) or "" for value in values], dtype=object)
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise DataError(
            ValidationIssue(f"column {name!r} holds a text that is not Unicode: {error.reason}")
        ) from None
    return texts
