"""What to note about a table that was read for a run; see ``data_notes``."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from dmls_core.data.formats.base import is_parquet
from dmls_core.data.formats.data_files import open_source
from dmls_core.data.formats.detection import describe_numbers
from dmls_core.data.leaks import CELLS, LEAST_ROWS, ROWS, draw_rows, find_relations, find_total
from dmls_core.data.split.grouping import hash_rows
from dmls_core.errors import DataError
from dmls_core.intake.data_notes import (
    MOST,
    fill_value_note,
    first_padded,
    left_out_note,
    missing_texts_note,
    padded_notes,
    relation_notes,
    repeated_note,
)
from dmls_core.intake.schema_inference.draft import describe
from dmls_core.intake.schema_inference.sample import sample_file
from dmls_core.settings import DataLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dmls_core.data.table.table import Table
    from dmls_core.intake.schema_inference.sampled_rows import Sample
    from dmls_core.spec import Spec

_BY_SPEC = "the spec excludes it"
"""Why a column that could be a feature is left out."""


def leak_notes(table: Table) -> list[str]:
    """Return the notes on columns that give the target away, or hold the same information."""
    if not table.columns:
        return []
    rows = max(LEAST_ROWS, min(ROWS, CELLS // len(table.columns)))
    picked = draw_rows([table.target] if table.labels else [], table.n_rows, rows)
    matrix = np.column_stack([table.matrix[picked], table.target[picked].astype(np.float64)])
    names = [*(column.name for column in table.columns), table.target_name]
    at = len(names) - 1
    texts = [position for position, column in enumerate(table.columns) if column.categories is not None]
    relations = find_relations(names, matrix, [*texts, at] if table.labels else texts, [at])
    notes = relation_notes(relations, table.target_name)
    if not table.labels:
        numbers = [position for position in range(at) if position not in texts]
        notes += filter(None, [find_total(names, matrix, numbers, relations, at)])
    return notes


def describe_table(table: Table, paths: Sequence[Path], spec: Spec, *, sample: bool) -> list[str]:
    """Return the notes on a table that was read from the files, or from a ``sample`` of their rows."""
    notes = leak_notes(table)
    notes += [f"{'In a sample, ' if sample else ''}{warning}." for warning in table.warnings]
    if table.columns and not (sample or spec.evaluation.group_duplicates):
        targets = np.unique(table.target, return_inverse=True)[1].astype(np.uint64)
        hashes = hash_rows(table.matrix) ^ targets
        notes.append(repeated_note(len(hashes) - len(np.unique(hashes)), len(hashes)))
    numbers = [
        (column.name, table.matrix[:, at])
        for at, column in enumerate(table.columns)
        if column.categories is None
    ]
    notes.append(fill_value_note([*numbers, *([] if table.labels else [(table.target_name, table.target)])]))
    if notation := spec.data.reading.get("numbers"):
        notes.append(describe_numbers(notation))
    source = open_source(paths[0], spec.data.format, DataLimits.from_environment())
    left_out = _left_out(source.names, spec)
    used = {*(column.name for column in table.columns), table.target_name}
    texts = any(name in used and kind in ("text", "category") for name, kind in source.column_types)
    rows = _sample(paths[0]) if left_out or texts or not is_parquet(paths[0]) else None
    if rows is not None:
        notes += _text_notes(table, rows, spec, complete=rows.complete and len(paths) == 1 and not sample)
    notes.append(left_out_note(_reasons(left_out, rows, spec)))
    return list(filter(None, notes))


def _text_notes(table: Table, rows: Sample, spec: Spec, *, complete: bool) -> list[str]:
    """Return the notes on what the texts of a file lose when they become numbers or missing values."""
    columns = dict(zip(rows.names, rows.columns, strict=True))
    numbers = [column.name for column in table.columns if column.categories is None]
    padded = [(name, text) for name in numbers if (text := first_padded(columns.get(name, ())))]
    names = [column.name for column in table.columns if column.categories is not None]
    names += [table.target_name] if table.labels else []
    texts = {name: columns[name] for name in names if name in columns}
    missing = missing_texts_note(
        texts, table.target_name, spec.data.not_missing, quoted=rows.quoted, complete=complete
    )
    return [*padded_notes([], padded), missing]


def _sample(path: Path) -> Sample | None:
    """Return rows of a file that was converted, whatever its name says; None if they cannot be read."""
    with TemporaryDirectory() as folder:
        link = Path(folder) / ("rows.parquet" if is_parquet(path) else "rows.csv")
        link.symlink_to(path.absolute())
        try:
            return sample_file(link, keys={})
        except DataError:
            return None


def _left_out(names: Sequence[str], spec: Spec) -> list[str]:
    """Return the columns of a file that have no role."""
    columns = spec.columns
    roles = {columns.target, columns.id, columns.time, columns.group, columns.weight}
    listed = frozenset(columns.features)
    dropped = frozenset(columns.drop) - frozenset(columns.dates)
    if not (listed or dropped):
        return []

    def is_out(name: str) -> bool:
        return name not in roles and (name not in listed if listed else name in dropped)

    return [name for name in names if is_out(name)]


def _reasons(names: Sequence[str], rows: Sample | None, spec: Spec) -> list[tuple[str, str]]:
    """Return why each of these columns is none of the features."""
    reasons: dict[str, str] = {}
    if rows is not None:
        limits, named = DataLimits.from_environment(), names[:MOST]
        types = rows.types or ("",) * len(rows.names)
        for name, values, dtype in zip(rows.names, rows.columns, types, strict=True):
            if name in named:
                reasons[name] = describe(name, values, dtype, limits, spec.data.not_missing).reason
    return [(name, reasons.get(name) or _BY_SPEC) for name in names]
