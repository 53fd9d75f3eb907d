"""What to note about a table that was read for a run; see ``data_notes``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dmls_core.data.formats.data_files import open_source
from dmls_core.data.leaks import CELLS, LEAST_ROWS, ROWS, draw_rows, find_relations, find_sum
from dmls_core.data.split.grouping import hash_rows
from dmls_core.errors import DataError
from dmls_core.intake.data_notes import MOST, left_out_note, relation_notes, repeated_note
from dmls_core.intake.schema_inference.draft import describe
from dmls_core.intake.schema_inference.sample import sample_file
from dmls_core.settings import DataLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dmls_core.data.table.table import Table
    from dmls_core.spec import Spec

BY_SPEC = "the spec excludes it"
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
        alone = [one for one in relations if one.concerns(table.target_name)]
        others = {*texts, *(names.index(name) for one in alone for name in (one.column, one.other))}
        numbers = [position for position in range(at) if position not in others]
        notes += filter(None, [find_sum(names, matrix, numbers, at)])
    return notes


def describe_table(table: Table, paths: Sequence[Path], spec: Spec, *, sample: bool) -> list[str]:
    """Return the notes on a table that was read from the files, or from a ``sample`` of their rows."""
    notes = leak_notes(table)
    notes += [f"{'In a sample, ' if sample else ''}{warning}." for warning in table.warnings]
    if table.columns and not (sample or spec.evaluation.group_duplicates):
        targets = np.unique(table.target, return_inverse=True)[1].astype(np.uint64)
        hashes = hash_rows(table.matrix) ^ targets
        notes.append(repeated_note(len(hashes) - len(np.unique(hashes)), len(hashes)))
    notes.append(left_out_note(_left_out(paths[0], spec)))
    return list(filter(None, notes))


def _left_out(path: Path, spec: Spec) -> list[tuple[str, str]]:
    """Return the columns of a file that have no role, and why each is none of the features."""
    columns = spec.columns
    roles = {columns.target, columns.id, columns.time, columns.group, columns.weight}
    listed = frozenset(columns.features)
    dropped = frozenset(columns.drop) - frozenset(columns.dates)
    if not (listed or dropped):
        return []

    def is_out(name: str) -> bool:
        return name not in roles and (name not in listed if listed else name in dropped)

    source = open_source(path, spec.data.format, DataLimits.from_environment())
    out = [name for name in source.names if is_out(name)]
    reasons: dict[str, str] = {}
    if out:
        with suppress(DataError):  # it is not named as a data file
            sample = sample_file(path, keys={})
            types = sample.types or ("",) * len(sample.names)
            for name, values, dtype in zip(sample.names, sample.columns, types, strict=True):
                if name in out[:MOST]:
                    reasons[name] = describe(name, values, dtype).reason
    return [(name, reasons.get(name) or BY_SPEC) for name in out]
