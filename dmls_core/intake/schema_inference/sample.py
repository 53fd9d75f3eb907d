"""Read a sample of a data file: rows from all over it, as columns of raw values."""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from dmls_core import sandbox
from dmls_core.data.compression import UNPACKED, ZIP, check_packed, only_member, unpack_head
from dmls_core.data.csv_dialect import Row, decode_head, read_rows
from dmls_core.data.detection import detect
from dmls_core.data.encodings import is_utf16, line_end_utf16
from dmls_core.data.formats import COMPRESSED, format_of, naming_hint, needs_whole
from dmls_core.data.missing_marks import describe_marks, find_marks, without_marks
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.csv_check import check_names, length_hint
from dmls_core.intake.file_sample import CHUNK, PLACES, join_chunks, places
from dmls_core.intake.schema_inference.draft import DATE, FIRST
from dmls_core.settings import IntakeLimits

if TYPE_CHECKING:
    import polars as pl

ROWS = 2_000
"""Largest number of rows in a sample."""

HEAD = 1 << 20
"""Bytes read from the beginning of a CSV file or the end of a large Parquet file."""

WHOLE = 8 << 20
"""Size up to which a Parquet file or a workbook is read whole; of a larger Parquet file only the end."""

LONGEST_NAME = 256
"""Characters of the longest column name in a spec."""

SHOWN = 80

_PARQUET_MARK = b"PAR1"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of a file: the first ones, and others spread over it.

    Attributes:
        names: the column names without surrounding blanks.
        columns: raw values, all columns of the same length: texts from CSV, values from Parquet.
        complete: whether these are all rows of the file.
        rows: number of rows in the file, if known.
        types: the type of each column; empty for a CSV.
        data: the keys of ``[data]`` that read the file.
        sheets: the visible sheets of a workbook.
        spread: whether the rows are from the whole file, not only from its beginning.
        notes: what should be known of the reading.
    """

    names: tuple[str, ...]
    columns: tuple[Sequence[Any], ...]
    complete: bool
    rows: int | None = None
    types: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    sheets: tuple[str, ...] = ()
    spread: bool = True
    notes: tuple[str, ...] = ()

    @property
    def seen(self) -> int:
        """Return the number of rows in the sample."""
        return len(self.columns[0]) if self.columns else 0


def read_sample(
    file: str,
    head: bytes,
    *,
    complete: bool,
    keys: Mapping[str, Any] | None = None,
    limits: IntakeLimits | None = None,
) -> Sample:
    """Read rows of a file; the extension of its name is the format.

    ``head`` has the first bytes of a text, then possibly chunks of it (see ``read_places``), or a whole
    Parquet file or workbook; ``complete`` if it is the whole file. ``keys`` are those of ``[data]`` that say
    how it is written; by default they are detected. Marks of missing values become None.

    Raises:
        DataError: this is not a data file, or it is empty, malformed, too large, or not as ``keys`` say.
    """
    return _marked(_read(file, head, complete, _text_keys(keys), limits), keys)


def _read(
    file: str, head: bytes, complete: bool, keys: Mapping[str, Any] | None, limits: IntakeLimits | None
) -> Sample:
    limits = limits or IntakeLimits.from_environment()
    kind = format_of(file)
    if kind is None:
        raise DataError(ValidationIssue("this is not a data file", hint=naming_hint(file), file=file))
    if needs_whole(file) and not complete:
        raise DataError(
            ValidationIssue(
                "the file is too large to be read whole",
                hint="save it as CSV, or infer the spec with `dmls init` on a machine that has the file"
                if kind == "excel"
                else "read the end of it, which has the columns and their types",
                file=file,
                expected=f"at most {WHOLE:,} bytes",
            )
        )
    if kind == "excel":
        with tempfile.NamedTemporaryFile(suffix=Path(file).suffix) as copy:
            copy.write(head)
            copy.flush()
            return _workbook(file, Path(copy.name), keys, limits)
    if kind != "parquet":
        if complete or len(head) <= HEAD or is_utf16(head):
            return _text(file, head, complete, keys, limits)
        try:
            sample = _text(file, join_chunks(head, HEAD), False, keys, limits)
            return replace(sample, spread=True)
        except DataError:  # of a record in a chunk, whose line is unknown
            return _text(file, head[:HEAD], False, keys, limits)
    if not head.startswith(_PARQUET_MARK):
        raise _not_parquet(file, head)
    return _parquet(file, io.BytesIO(head), limits, ROWS)


def sample_file(
    path: Path, limits: IntakeLimits | None = None, *, keys: Mapping[str, Any] | None = None
) -> Sample:
    """Read rows of a file on disk; raises as ``read_sample``, and if the file cannot be opened."""
    parquet = path.suffix.lower() == ".parquet"
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if format_of(path.name) == "excel":
                own = limits or IntakeLimits.from_environment()
                return _marked(_workbook(path.name, path, _text_keys(keys), own), keys)
            if parquet and size > WHOLE:
                file.seek(-HEAD, io.SEEK_END)
                return parquet_tail(path.name, file.read(), size, limits=limits)
            head = file.read(WHOLE) if parquet else read_places(path.name, size, partial(_read_at, file))
    except OSError as error:
        raise DataError(ValidationIssue(f"cannot be read: {error.strerror}", file=str(path))) from error
    return read_sample(path.name, head, complete=len(head) >= size, keys=keys, limits=limits)


def _text_keys(keys: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if keys is None else {key: value for key, value in keys.items() if key != "missing"}


def _marked(sample: Sample, keys: Mapping[str, Any] | None) -> Sample:
    """Return a sample with None in place of marks: those of ``keys``, or if these are None, those found."""
    marks = find_marks(sample.columns, DATE) if keys is None else tuple(keys.get("missing", ()))
    if not marks:
        return sample
    note = describe_marks(marks, dict(zip(sample.names, sample.columns, strict=True)))
    return replace(
        sample,
        columns=tuple(without_marks(values, marks) for values in sample.columns),
        data={**sample.data, "missing": list(marks)},
        notes=(note,) if note else (),
    )


def _read_at(file: BinaryIO, start: int, limit: int) -> bytes:
    file.seek(start)
    return file.read(limit)


def read_places(name: str, size: int, read: Callable[[int, int], bytes]) -> bytes:
    """Return the first bytes of a text, and chunks of a large one from places spread over it.

    ``read`` returns bytes of the file by start and number.
    """
    if size <= HEAD + PLACES * CHUNK:
        return read(0, size)
    head = read(0, HEAD)
    if name.lower().endswith(COMPRESSED) or is_utf16(head):
        return head
    return b"".join((head, *(read(start, CHUNK) for start in places(size, HEAD))))


def parquet_tail(file: str, tail: bytes, size: int, *, limits: IntakeLimits | None = None) -> Sample:
    """Read columns, types and number of rows from ``tail``, the end of a Parquet file of ``size`` bytes.

    Raises ``DataError`` if it is not the end of a Parquet file, or shorter than the file's footer.
    """
    limits = limits or IntakeLimits.from_environment()
    if not tail.endswith(_PARQUET_MARK):
        raise _not_parquet(file, tail)
    if int.from_bytes(tail[-8:-4], "little") + 8 > len(tail):
        raise DataError(ValidationIssue("its footer is too long to be read", file=file))
    if size > limits.data_bytes:
        raise DataError(
            ValidationIssue(
                "the data is too large", file=file, expected=f"at most {limits.data_bytes:,} bytes"
            )
        )
    with tempfile.NamedTemporaryFile(suffix=".parquet") as sparse:  # sparse: as large on disk as the tail
        sparse.seek(max(0, size - len(tail)))
        sparse.write(tail)
        sparse.flush()
        return _parquet(file, Path(sparse.name), limits, 0)


def _text(
    file: str, head: bytes, complete: bool, keys: Mapping[str, Any] | None, limits: IntakeLimits
) -> Sample:
    if complete and file.lower().endswith(".zip") and head.startswith(ZIP):
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(head)) as archive:
            only_member(archive, file)
    check_packed(file, unpack_head(head))
    keys = detect(file, head) if keys is None else keys
    if keys or format_of(file) == "jsonl" or file.lower().endswith(COMPRESSED):
        return _converted(file, head, complete, keys, limits)
    return _csv(file, head, complete, limits)


_OF_SHEETS = {"decimal", "thousands", "header", "skip_rows"}
"""Keys that apply to the text of a sheet, which has commas between its columns."""


def _workbook(file: str, path: Path, keys: Mapping[str, Any] | None, limits: IntakeLimits) -> Sample:
    """Read the first rows of a sheet, which a sandbox writes as CSV text."""
    sheet, decimal = (keys or {}).get("sheet"), (keys or {}).get("decimal", ".")
    try:
        found = sandbox.run(sheet_text, str(path.absolute()), sheet, decimal, file=file)
        text = found["text"].encode()
        own = detect(file, text) if keys is None else keys
        own = {key: value for key, value in own.items() if key in _OF_SHEETS}
        sample = _text("sheet.csv", text, found["whole"], own, limits)
    except DataError as error:
        raise DataError([replace(issue, file=file) for issue in error.issues]) from None
    data = {**sample.data, **({"sheet": found["name"]} if len(found["names"]) > 1 else {})}
    return replace(sample, data=data, sheets=tuple(found["names"]))


def sheet_text(path: str, sheet: str | None, decimal: str) -> dict[str, Any]:
    """Return the beginning of a sheet as CSV text, and the names of all; runs in the sandbox."""
    from dmls_core.data.excel import write_sheet

    with tempfile.NamedTemporaryFile() as out:
        text = Path(out.name)
        found = write_sheet(Path(path), sheet, text, decimal=decimal, head=UNPACKED)
        return {"text": text.read_text(), "name": found.name, "names": found.names, "whole": found.whole}


def _converted(
    file: str, head: bytes, complete: bool, keys: Mapping[str, Any], limits: IntakeLimits
) -> Sample:
    """Read the first rows of a file that is converted first, in a sandbox."""
    from dmls_core.data.conversion import convert_all, line_shift
    from dmls_core.spec.data_table import Data

    plain = unpack_head(head)
    if head and not plain:
        hint = "it is damaged or incomplete: upload it again"
        raise DataError(ValidationIssue("the file cannot be unpacked", hint, file=file))
    complete = complete and len(plain) < UNPACKED
    if not complete:
        end = line_end_utf16(plain) if keys.get("encoding") == "utf-16" else b"\n"
        plain = plain[: plain.rfind(end) + len(end)]
    options = Data.model_validate({"format": format_of(file), **keys})
    with tempfile.TemporaryDirectory() as folder:
        name = Path(Path(file).name.lower())
        copy = Path(folder) / (name.stem if name.suffix in COMPRESSED else name)
        copy.write_bytes(plain)
        (path,) = sandbox.run(convert_all, [str(copy)], options.model_dump(), folder + "/out", file=file)
        text = Path(path).read_bytes()
    try:
        sample = _csv(file, text, True, limits)
    except DataError as error:
        shift = line_shift(file, options)
        raise DataError(
            [
                replace(issue, line=max(1, issue.line - shift) if issue.line else None)
                for issue in error.issues
            ]
        ) from None
    whole = complete and sample.complete
    shown = {key: value for key, value in keys.items() if (key, value) != ("format", format_of(file))}
    rows = sample.rows if complete else None
    return replace(sample, complete=whole, rows=rows, data=shown, spread=complete)


def _csv(file: str, head: bytes, complete: bool, limits: IntakeLimits) -> Sample:
    rows = read_rows(file, decode_head(file, head, complete=complete), complete=complete)
    first = next(rows, None)
    if first is None:
        raise DataError(
            ValidationIssue(
                "the header is longer than the checked part of the file", hint="shorten it", file=file, line=1
            )
        )
    header = Row(first.line, [name.strip() for name in first.cells])
    if issues := [*check_names(file, header, limits.columns), *_unfit(file, header.cells)]:
        raise DataError(issues)
    width = len(header.cells)
    body = list(rows)
    if not body:
        issue = (
            "the file has a header and no rows"
            if complete
            else "the first row is longer than the checked part of the file"
        )
        raise DataError(ValidationIssue(issue, file=file))
    if odd := next((row for row in body if len(row.cells) != width), None):
        raise DataError(
            ValidationIssue(
                f"the row has too {'many' if len(odd.cells) > width else 'few'} cells",
                hint=length_hint(header, body),
                file=file,
                line=odd.line,
                found=f"{len(odd.cells)} cells",
                expected=f"{width} cells",
            )
        )
    # A sorted file would mislead by its first rows.
    cells = [body[at].cells for at in _spread(len(body))]
    columns = tuple(zip(*cells, strict=True))
    number = len(body) if complete else None
    return Sample(tuple(header.cells), columns, number == len(cells), number, spread=complete)


def _spread(rows: int) -> list[int]:
    """Return the positions of rows to look at: the first ones, and others all over the file."""
    if rows <= ROWS:
        return list(range(rows))
    others = ROWS - FIRST
    return [*range(FIRST), *(FIRST + at * (rows - FIRST) // others for at in range(others))]


def _unfit(file: str, names: Iterable[str]) -> list[ValidationIssue]:
    """Return the issues of names that a spec cannot contain."""
    return [
        ValidationIssue(
            f"column {position} has a name that a spec cannot contain",
            hint="rename it",
            file=file,
            line=1,
            found=repr(name[:SHOWN]),
            expected=f"at most {LONGEST_NAME} characters, without control characters",
        )
        for position, name in enumerate(names, start=1)
        if len(name) > LONGEST_NAME or _CONTROL.search(name)
    ]


def _parquet(file: str, source: io.BytesIO | Path, limits: IntakeLimits, rows: int) -> Sample:
    import polars as pl

    try:
        schema = pl.read_parquet_schema(source)
        if issues := [*check_names(file, Row(1, list(schema)), limits.columns), *_unfit(file, schema)]:
            raise DataError([replace(issue, line=None) for issue in issues])
        scan = pl.scan_parquet(source, glob=False)
        total = int(scan.select(pl.len()).collect().item())
        frame = pl.DataFrame(schema=schema)
        if rows:
            step = max(1, (total - FIRST) // (rows - FIRST))
            others = scan.slice(FIRST).gather_every(step).head(rows - FIRST)
            frame = pl.concat([scan.head(FIRST), others]).collect()
        columns = tuple(_values(frame[name]) for name in schema)
    except (pl.exceptions.PolarsError, OSError, ValueError, ArithmeticError) as error:
        reason = str(error).split("\n", 1)[0][:200]
        raise DataError(
            ValidationIssue(
                "the file cannot be read as Parquet",
                hint="it is damaged: write and upload it again",
                file=file,
                found=reason,
            )
        ) from None
    if not total:
        raise DataError(ValidationIssue("the file has no rows", "upload it again with its rows", file=file))
    return Sample(tuple(schema), columns, frame.height == total, total, tuple(map(str, schema.values())))


def _values(series: pl.Series) -> Sequence[Any]:
    """Return a column as Python values; None for nested ones."""
    if series.dtype.is_nested():
        return [None] * len(series)
    return series.to_list()


def _not_parquet(file: str, found: bytes) -> DataError:
    return DataError(
        ValidationIssue(
            "the file is empty" if not found else "the file is not Parquet",
            hint="correct its extension, or write it again",
            file=file,
            found=repr(found[:4]),
            expected=repr(_PARQUET_MARK),
        )
    )
