"""Infer the schema of a data file from a sample: columns, a likely target, a spec to start from."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dmls_core import sandbox
from dmls_core.data.encoder import is_missing, number
from dmls_core.data.formats.compression import ZIP
from dmls_core.data.formats.detection import describe_numbers
from dmls_core.data.formats.missing_marks import count_missing
from dmls_core.data.formats.names import format_of, load_format
from dmls_core.data.formats.parquet_footer import read_footer
from dmls_core.data.table.reader import missing_target
from dmls_core.errors import DataError, PlatformError, ValidationIssue
from dmls_core.intake.data_notes import (
    MOST,
    fill_value_note,
    first_padded,
    left_out_note,
    missing_texts_note,
    padded_notes,
    relation_notes,
)
from dmls_core.intake.schema_inference.draft import (
    SHOWN,
    ColumnKind,
    InferredColumn,
    describe,
    draft_spec,
    propose,
)
from dmls_core.intake.schema_inference.parquet_sample import parquet_tail
from dmls_core.intake.schema_inference.sample import (
    HEAD,
    MARKS,
    PASS,
    WHOLE,
    read_at,
    read_chunks,
    read_sample,
    sample_file,
    thinned_sample,
)
from dmls_core.intake.schema_inference.sampled_rows import Sample
from dmls_core.intake.schema_inference.target import TargetGuess, choose_target, guess_target
from dmls_core.settings import DataLimits
from dmls_core.spec.definitions import Task

__all__ = [
    "HEAD",
    "WHOLE",
    "ColumnKind",
    "FileSchema",
    "InferredColumn",
    "Sample",
    "draft_spec",
    "infer_file_schema",
    "infer_footer_schema",
    "infer_part_schema",
    "infer_schema",
    "parquet_tail",
    "read_chunks",
    "read_sample",
    "sample_file",
]

PREVIEW = 8
"""Rows in the preview."""

PREVIEW_COLUMNS = 100
"""Columns in the preview."""


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The inferred schema of a data file.

    Attributes:
        document: a spec to start from, as ``tomllib`` reads it.
        seen: number of rows in the sample.
        rows: number of rows in the file, if known.
        preview: the first rows as text; None for a missing value.
        data: the keys of ``[data]`` with which the file was read.
        sheets: the visible sheets of a workbook.
        spread: whether the sample is from the whole file, not only from its beginning.
        extent: the part of a large file that the sample is from, such as ``rows 1 to 12,000,000``.
        remarks: what may be wrong with the reading of the columns.
        notes: the remarks, what the drafted spec leaves out, and columns that give others away; see
            ``data_notes``.
    """

    file: str
    columns: tuple[InferredColumn, ...]
    guess: TargetGuess
    task: Task
    document: Mapping[str, Any]
    seen: int
    rows: int | None
    preview: tuple[tuple[str | None, ...], ...]
    data: Mapping[str, Any]
    sheets: tuple[str, ...]
    spread: bool
    extent: str
    remarks: tuple[str, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the schema as JSON data."""
        return {
            "file": self.file,
            "columns": [column.as_json() for column in self.columns],
            **self.guess.as_json(),
            "task": self.task,
            "document": self.document,
            "seen": self.seen,
            "rows": self.rows,
            "preview": self.preview,
            "data": dict(self.data),
            "sheets": self.sheets,
            "spread": self.spread,
            "extent": self.extent,
            "remarks": self.remarks,
            "notes": self.notes,
        }


def infer_schema(file: str, sample: Sample, target: str = "") -> FileSchema:
    """Infer the schema of a sample of ``file``, with the column ``target`` as the target if given.

    Raises:
        DataError: no column can be the target, or no column is left as a feature.
    """
    types = sample.types or ("",) * len(sample.names)
    limits, not_missing = DataLimits.from_environment(), sample.data.get("not_missing", ())
    columns = tuple(
        describe(name, values, dtype, limits, not_missing)
        for name, values, dtype in zip(sample.names, sample.columns, types, strict=True)
    )
    if target:
        guess: TargetGuess | None = choose_target(columns, sample.columns, target, file, not_missing)
    else:
        guess = guess_target(columns, sample.columns, not_missing)
    if guess is None:
        raise DataError(
            ValidationIssue(
                "no column can be the target",
                hint="a target has numbers, or text with few distinct values, and at least two values",
                file=file,
                found=", ".join(f"{column.name} ({column.kind})" for column in columns[:20]),
            )
        )
    preview = zip(*(values[:PREVIEW] for values in sample.columns[:PREVIEW_COLUMNS]), strict=True)
    remarks = _remarks(columns, guess.column, sample)
    return FileSchema(
        file=file,
        columns=columns,
        guess=guess,
        task=propose(guess.column).task,
        document=draft_spec(columns, guess.column, file, sample.data),
        seen=sample.seen,
        rows=sample.rows,
        preview=tuple(tuple(_shown(value, not_missing) for value in row) for row in preview),
        data=sample.data,
        sheets=sample.sheets,
        spread=sample.spread,
        extent=sample.extent,
        remarks=tuple(remarks),
        notes=tuple(_notes(columns, guess, sample, remarks)),
    )


def _remarks(columns: Sequence[InferredColumn], target: InferredColumn, sample: Sample) -> list[str]:
    """Return what may be wrong with the reading of the columns."""
    texts = {
        column.name: values
        for column, values in zip(columns, sample.columns, strict=True)
        if column.kind in ("category", "text", "constant", "empty") and column.low is None
    }
    not_missing = sample.data.get("not_missing", ())
    missing = missing_texts_note(
        texts, target.name, not_missing, quoted=sample.quoted, complete=sample.complete
    )
    remarks = [*_padded(columns, target, sample), *_ambiguous(columns, sample), missing, *sample.notes]
    return list(filter(None, remarks))


def _notes(
    columns: Sequence[InferredColumn], guess: TargetGuess, sample: Sample, remarks: Sequence[str]
) -> list[str]:
    """Return what ``dmls validate`` and ``_status`` say of the drafted spec."""
    target = guess.column
    # What gives a target away is worth a word once it is the target for sure.
    notes = relation_notes(guess.relations, target.name if guess.certain else "")
    if guess.certain and (total := guess.totals.get(target.name)):
        notes.append(total)
    if target.missing:
        prefix = "" if sample.complete else "In a sample, "
        cells = sample.columns[sample.names.index(target.name)]
        texts = count_missing(cells, sample.data.get("not_missing", ()))
        notes.append(f"{prefix}{missing_target(target.missing, sample.seen, dict(texts.most_common()))}.")
    notes += remarks
    notes.append(
        fill_value_note(
            (column.name, np.array([*map(number, values)]))
            for column, values in zip(columns, sample.columns, strict=True)
            if column.low is not None
        )
    )
    if numbers := sample.data.get("numbers"):
        notes.append(describe_numbers(numbers))
    if sample.extent:
        notes.append(f"The sample is from {sample.extent}.")
    out = [(column.name, column.reason) for column in columns if column.reason and column != target]
    return [*filter(None, [*notes, left_out_note(out)])]


def _padded(columns: Sequence[InferredColumn], target: InferredColumn, sample: Sample) -> list[str]:
    """Return notes on columns with leading zeros, by whether the draft keeps them."""
    padded = [
        (column, text)
        for column, values in zip(columns, sample.columns, strict=True)
        if column.kind in ("category", "code", "number") and (text := first_padded(values))
    ]
    categories = [(column.name, text) for column, text in padded if column.kind == "category"]
    numbers = [(column.name, text) for column, text in padded if column.kind != "category"]
    return padded_notes(categories, [number for number in numbers if number[0] != target.name])


_THREE = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")


def _ambiguous(columns: Sequence[InferredColumn], sample: Sample) -> list[str]:
    """Return a note on columns whose mark may separate thousands: all numbers have three digits behind it."""
    ambiguous = []
    for column, values in zip(columns, sample.columns, strict=True):
        texts = [value for value in values if isinstance(value, str) and not is_missing(value)]
        if column.kind == "number" and texts and all(_THREE.fullmatch(text.strip()) for text in texts):
            ambiguous.append(f"{column.name} ({texts[0].strip()})")
    if not ambiguous:
        return []
    named = ", ".join(ambiguous[:MOST])
    return [f"All numbers have three decimals in {named}: if these are thousands, correct [data] thousands."]


def _shown(value: Any, not_missing: Collection[str]) -> str | None:  # noqa: ANN401 - any value of a column
    return None if is_missing(value, not_missing) else str(value)[:SHOWN]


BY_HAND = f"{sandbox.HINT}; if it is intact, write the spec by hand"

TURN_SECONDS = 10.0
"""Longest wait of a call for its turn in seconds: a server has few threads."""

_turns = threading.BoundedSemaphore(2)
"""Files that are read at the same time."""


@contextmanager
def _turn() -> Iterator[None]:
    """Wait for a turn to read a Parquet file; raise ``PlatformError`` if too many are being read."""
    if not _turns.acquire(timeout=TURN_SECONDS):
        raise PlatformError("too many Parquet files are being read: try again in a moment")
    try:
        yield
    finally:
        _turns.release()


def infer_footer_schema(
    file: str, tail: bytes, size: int, keys: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Infer the schema of a Parquet file of ``size`` bytes by its end, in the sandbox, as JSON data.

    Raises:
        DataError: this is not the end of a Parquet file, or the file has no column to predict.
        PlatformError: too many files are being read, or no process can be started.
    """
    with _turn(), tempfile.NamedTemporaryFile() as copy:
        copy.write(tail)
        copy.flush()
        schema: dict[str, Any] = sandbox.run(
            read_footer_schema, copy.name, file, size, keys, file=file, hint=BY_HAND
        )
        return schema


def infer_part_schema(path: Path, size: int, keys: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Infer the schema of a compressed text of ``size`` bytes whose beginning is in ``path``, under its name.

    Raises:
        DataError: as in ``infer_schema``.
    """
    packed = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(HEAD)
    sample = read_sample(path.name, head, complete=len(head) >= size, keys=keys)
    cut = packed < size
    if not sample.spread and not (cut and head.startswith(ZIP)):  # the end of an archive says what is in it
        sample = thinned_sample(path, path.name, sample, cut=cut, keys=keys)
    return infer_schema(path.name, sample).as_json()


def infer_file_schema(
    path: Path, target: str = "", *, keys: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Infer the schema of a file on disk as JSON data; a Parquet file is read in the sandbox.

    ``keys`` are as for ``read_sample``.

    Raises:
        DataError: as in ``infer_schema``, or the file cannot be read.
        PlatformError: as in ``infer_footer_schema``.
    """
    name = format_of(path.name)
    if not (name and load_format(name).has_footer):
        return read_file_schema(str(path), target, keys)
    source = str(path.absolute())
    with _turn():
        try:
            schema: dict[str, Any] = sandbox.run(
                read_file_schema, source, target, keys, limits=PASS, file=path.name, hint=BY_HAND
            )
        except sandbox.SandboxError:
            # Such as groups of rows that take too much memory: the end has the columns.
            if path.stat().st_size <= WHOLE:
                raise
            schema = sandbox.run(read_end_schema, source, target, file=path.name, hint=BY_HAND)
    return schema


def read_file_schema(path: str, target: str, keys: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Infer the schema of a file on disk; runs in the sandbox for a Parquet file."""
    return infer_schema(Path(path).name, sample_file(Path(path), keys=keys), target).as_json()


def read_end_schema(path: str, target: str) -> dict[str, Any]:
    """Infer the schema of a Parquet file by its end; runs in the sandbox."""
    size = Path(path).stat().st_size
    with Path(path).open("rb") as file:
        sample = parquet_tail(Path(path).name, read_footer(size, partial(read_at, file)), size)
    return infer_schema(Path(path).name, sample, target).as_json()


def read_footer_schema(path: str, file: str, size: int, keys: dict[str, Any] | None) -> dict[str, Any]:
    """Infer the schema of a Parquet file by the end that ``path`` has; runs in the sandbox."""
    sample = parquet_tail(file, Path(path).read_bytes(), size)
    # Of the spec: there are no values that show them.
    marks = {key: keys[key] for key in MARKS if keys and keys.get(key)}
    return infer_schema(file, replace(sample, data=marks)).as_json()
