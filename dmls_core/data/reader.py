"""Data files to a table: float32 features, target, and an answer to everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dmls_core.data.device import DeviceReader
from dmls_core.data.features import EXACT_INTEGERS, Feature, dates, merged_integers, nested, read_feature
from dmls_core.data.files import Files
from dmls_core.data.findings import Finding, place
from dmls_core.data.roles import Roles, choose_roles, missing_column
from dmls_core.data.source import Look
from dmls_core.data.table import Table
from dmls_core.data.targets import read_target
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec import Columns
from dmls_core.spec.definitions import Task

_SLICE = 65_536
"""Rows of the frame that become rows of the matrix at a time."""


def read_table(
    paths: Sequence[Path],
    columns: Columns,
    task: Task,
    *,
    data_format: str | None = None,
    limits: DataLimits | None = None,
    reader: DeviceReader | None = None,
) -> Table:
    """Read features and target.

    Rows without a target are left out, and counted in the table's warnings.

    Args:
        paths: the data files, read one below the other; all must have the columns that are used.
        columns: the spec's ``[columns]``.
        task: what the model predicts.
        data_format: ``csv`` or ``parquet``; told from each file's name if None.
        limits: bounds on the data; those of the environment if None.
        reader: reads on a device what it can; the table is the same.

    Raises:
        DataError: the data cannot be read, or does not fit the spec; the first issue of each column, with
            its line.
    """
    limits = limits or DataLimits.from_environment()
    files = Files(paths, data_format, limits)
    roles = _roles(files, columns)
    looks = files.looks(roles.used)
    if unusable := [nested(name) for name, look in looks.items() if look == "unusable"]:
        raise DataError(place(unusable, files, limits.issues))
    types = {name: _type(name, looks[name], roles, task) for name in roles.used}
    frame = files.read(types, reader)
    findings: list[Finding] = []
    features: list[Feature] = []
    for name in roles.features:
        categorical = name in roles.categorical or looks[name] == "category"
        feature = _feature(frame[name], looks[name], files, limits, categorical=categorical)
        findings.append(feature) if isinstance(feature, Finding) else features.append(feature)
    target = read_target(frame[roles.target], task, limits)
    if isinstance(target, Finding):
        findings.append(target)
    if findings or isinstance(target, Finding):
        raise DataError(place(findings, files, limits.issues))
    values, labels = target
    encoded = pl.DataFrame([series for _, series in features])
    warnings: tuple[str, ...] = ()
    kept: pl.Series | None = None
    if values.null_count():
        empty = int(frame.select(pl.all_horizontal(pl.all().is_null())).to_series().sum())
        if dropped := values.null_count() - empty:
            warnings = (f"{dropped} of {len(values) - empty} rows have no target and were left out",)
        kept = values.is_not_null()
        encoded, values = encoded.filter(kept), values.filter(kept)
    table_columns = tuple(column for column, _ in features)
    slices = list(encoded.iter_slices(_SLICE))
    del frame, features, encoded  # as large as the matrix: the slices are the last to hold it
    return Table(
        columns=table_columns,
        matrix=_matrix(slices),
        target_name=columns.target,
        target=values.to_numpy(),
        labels=labels,
        warnings=warnings,
        heights=files.heights,
        kept=None if kept is None else kept.to_numpy(),
    )


def _roles(files: Files, columns: Columns) -> Roles:
    first, *others = files.sources
    roles = choose_roles(columns, first.names, first.path.name, first.header_line)
    if issues := [
        missing_column(name, source.names, source.path.name, "columns", source.header_line)
        for source in others
        for name in roles.used
        if name not in source.names
    ]:
        raise DataError(issues)
    return roles


def _type(name: str, look: Look, roles: Roles, task: Task) -> pl.DataType:
    if look in ("time", "category", "text") or name in roles.categorical:
        return pl.Categorical()
    if name != roles.target:
        return pl.Float32()
    return pl.Categorical() if task == "classification" or look == "truth" else pl.Float64()


def _feature(
    series: pl.Series, look: Look, files: Files, limits: DataLimits, *, categorical: bool
) -> Feature | Finding:
    if look == "time" and not categorical:
        return dates(series.name)
    feature = read_feature(series, limits, categorical=categorical)
    if look == "integer" and not isinstance(feature, Finding) and feature[0].categories is None:
        largest = max(-float(feature[1].min() or 0), float(feature[1].max() or 0))  # type: ignore[arg-type]
        exact = files.integers(series.name) if largest >= EXACT_INTEGERS else None
        if exact is not None and (finding := merged_integers(exact)):
            return finding
    return feature


def _matrix(slices: list[pl.DataFrame]) -> NDArray[np.float32]:
    """Return a frame as a C-contiguous matrix, NaN for nulls.

    Args:
        slices: the frame, piece by piece. The list is emptied, so that each piece's memory is free before the
            matrix needs the next one's: frame and matrix are never held whole side by side.
    """
    rows, columns = sum(part.height for part in slices), slices[0].width if slices else 0
    matrix = np.empty((rows, columns), dtype=np.float32)
    slices.reverse()
    start = 0
    while slices:
        part = slices.pop()
        matrix[start : start + part.height] = part.to_numpy(order="c")
        start += part.height
    return matrix
