"""The whole look at a file's beginning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dmls_core.data.encoder import is_missing
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.sniff.columns import SHOWN, Column, describe
from dmls_core.intake.sniff.draft import draft
from dmls_core.intake.sniff.sample import Sample
from dmls_core.intake.sniff.target import guess_target, guess_task
from dmls_core.spec.definitions import Task

PREVIEW = 8
"""Rows that are shown."""

PREVIEW_COLUMNS = 100
"""Columns whose rows are shown."""


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What the beginning of a data file tells.

    Attributes:
        file: its name.
        columns: what each column seems to be.
        target: the column most likely to be predicted.
        task: whether that is a class or a number.
        document: a spec to begin with, as ``tomllib`` would read it.
        seen: rows that were looked at.
        rows: of the whole file, where that is known.
        preview: the first rows as text; None is a missing value.
    """

    file: str
    columns: tuple[Column, ...]
    target: str
    task: Task
    document: Mapping[str, Any]
    seen: int
    rows: int | None
    preview: tuple[tuple[str | None, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """Return this as plain JSON data."""
        return {
            "file": self.file,
            "columns": [column.as_json() for column in self.columns],
            "target": self.target,
            "task": self.task,
            "document": self.document,
            "seen": self.seen,
            "rows": self.rows,
            "preview": self.preview,
        }


def sniff(file: str, sample: Sample) -> Sniffed:
    """Look at a sample.

    Args:
        file: its name, for messages.
        sample: the file's first rows.

    Raises:
        DataError: no column can be predicted, or none is left to predict from.
    """
    types = sample.types or ("",) * len(sample.names)
    columns = tuple(map(describe, sample.names, sample.columns, types))
    target = guess_target(columns)
    if target is None:
        raise DataError(
            ValidationIssue(
                "no column can be predicted",
                hint="a target is a number, or text with few distinct values, and not the same in every row",
                file=file,
                found=", ".join(f"{column.name} ({column.kind})" for column in columns[:20]),
            )
        )
    task = guess_task(target)
    preview = zip(*(values[:PREVIEW] for values in sample.columns[:PREVIEW_COLUMNS]), strict=True)
    return Sniffed(
        file=file,
        columns=columns,
        target=target.name,
        task=task,
        document=draft(columns, target, task, file),
        seen=sample.seen,
        rows=sample.rows,
        preview=tuple(tuple(map(_shown, row)) for row in preview),
    )


def _shown(value: Any) -> str | None:  # noqa: ANN401  whatever a column holds
    return None if is_missing(value) else str(value)[:SHOWN]
