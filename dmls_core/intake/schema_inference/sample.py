"""Read a sample of a data file: rows from all over it, as columns of raw values."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from dmls_core import sandbox
from dmls_core.data.formats.base import Format, is_parquet
from dmls_core.data.formats.compression import UNPACKED, ZIP, check_packed, only_member, unpack_head
from dmls_core.data.formats.csv_dialect import CsvRow, decode_head, ragged_column, read_rows
from dmls_core.data.formats.detection import NOTATION, detect, detect_notation
from dmls_core.data.formats.encodings import line_end_utf16
from dmls_core.data.formats.missing_marks import describe_marks, find_marks, quoted_texts, without_marks
from dmls_core.data.formats.names import (
    COMPRESSED,
    file_format,
    format_of,
    load_format,
    naming_hint,
    text_name,
)
from dmls_core.data.formats.thinning import CHUNK, CHUNKS, span, thin_text, whole_beginning
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.csv_check import check_names, length_hint
from dmls_core.intake.data_notes import sheets_note
from dmls_core.intake.file_sample import chunk_starts, join_chunks
from dmls_core.intake.schema_inference.draft import DATE, FIRST
from dmls_core.intake.schema_inference.parquet_sample import IN_TIME, SECONDS, read_parquet
from dmls_core.intake.schema_inference.sampled_rows import ROWS, Sample, unfit_names
from dmls_core.settings import IntakeLimits

HEAD = 1 << 20
"""Bytes read from the beginning of a CSV file or the end of a large Parquet file."""

WHOLE = 8 << 20
"""Size up to which a Parquet file or a workbook is read whole; of a larger Parquet file only slices."""

PASS = sandbox.Limits(memory=2 << 30, seconds=120, cpu_seconds=120)
"""Limits of a pass through a file."""


def read_sample(
    file: str,
    head: bytes,
    *,
    complete: bool,
    keys: Mapping[str, Any] | None = None,
    limits: IntakeLimits | None = None,
) -> Sample:
    """Read rows of a file; the extension of its name is the format.

    ``head`` has the first bytes of a text, then possibly chunks of it (see ``read_chunks``), or a whole
    Parquet file or workbook; ``complete`` if it is the whole file. ``keys`` are those of ``[data]`` that say
    how it is written; by default they are detected. Marks of missing values become None.

    Raises:
        DataError: this is not a data file, or it is empty, malformed, too large, or not as ``keys`` say.
    """
    return with_marks(_read(file, head, complete, _text_keys(keys), limits), keys)


def _read(
    file: str, head: bytes, complete: bool, keys: Mapping[str, Any] | None, limits: IntakeLimits | None
) -> Sample:
    limits = limits or IntakeLimits.from_environment()
    name = format_of(file)
    if name is None:
        raise DataError(ValidationIssue("this is not a data file", hint=naming_hint(file), file=file))
    file_format = load_format(name)
    if not file_format.is_text:
        if not complete:
            hint = "upload it: its schema is inferred where it lies"
            expected = f"at most {WHOLE:,} bytes"
            raise DataError(
                ValidationIssue("the file is too large to be read whole", hint, file=file, expected=expected)
            )
        with tempfile.NamedTemporaryFile(suffix=Path(file).suffix) as copy:
            copy.write(head)
            copy.flush()
            return _sample_rows(file, Path(copy.name), file_format, keys, limits)
    if complete or len(head) <= HEAD:
        return _text(file, head, complete, keys, limits)
    try:
        return _spread_text(file, head, keys, limits)
    except DataError:  # of a record in a chunk, whose line is unknown
        return _text(file, head[:HEAD], False, keys, limits)


def sample_file(
    path: Path, limits: IntakeLimits | None = None, *, keys: Mapping[str, Any] | None = None
) -> Sample:
    """Read rows of a file on disk; raises as ``read_sample``, and if the file cannot be opened."""
    name = format_of(path.name)
    try:
        if name and not load_format(name).is_text:
            limits = limits or IntakeLimits.from_environment()
            sample = _sample_rows(path.name, path, load_format(name), _text_keys(keys), limits)
            return with_marks(sample, keys)
        size = path.stat().st_size
        with path.open("rb") as file:
            head = read_chunks(path.name, size, partial(read_at, file))
    except OSError as error:
        raise DataError(ValidationIssue(f"cannot be read: {error.strerror}", file=str(path))) from error
    sample = read_sample(path.name, head, complete=len(head) >= size, keys=keys, limits=limits)
    if sample.spread or not path.name.lower().endswith(COMPRESSED):
        return sample
    return thinned_sample(path, path.name, sample, keys=keys, limits=limits)


def thinned_sample(
    path: Path,
    file: str,
    sample: Sample,
    *,
    cut: bool = False,
    keys: Mapping[str, Any] | None = None,
    limits: IntakeLimits | None = None,
) -> Sample:
    """Return rows from all over a compressed text, of whose beginning a sample is known.

    ``cut`` says that ``path`` has only the beginning of the file. Raises ``DataError`` if it is damaged.
    """
    limits = limits or IntakeLimits.from_environment()
    reading = dict(sample.data if keys is None else keys)
    with tempfile.NamedTemporaryFile() as copy:
        arguments = str(path.absolute()), reading.get("encoding", "utf-8"), copy.name, HEAD, SECONDS, cut
        thinned = sandbox.run(thin_text, *arguments, limits=PASS, file=file)
        content = Path(copy.name).read_bytes()
    plain = {key: value for key, value in reading.items() if key not in ("encoding", *MARKS)}
    try:
        spread = _text(text_name(file), content, False, plain, limits)
    except DataError:  # of a record in a chunk, which may begin within quotes
        return sample
    reading = {key: value for key, value in reading.items() if key not in MARKS}
    spread = replace(spread, data={**spread.data, **reading}, spread=True)
    spread = with_marks(spread, keys)
    return replace(spread, extent=span(thinned, path.stat().st_size, cut))


def _spread_text(file: str, content: bytes, keys: Mapping[str, Any] | None, limits: IntakeLimits) -> Sample:
    """Read records from all over a text; see ``read_chunks``."""
    reading = detect(file, content[:HEAD]) if keys is None else dict(keys)
    plain = {key: value for key, value in reading.items() if (key, value) != ("encoding", "utf-16")}
    sample = _text(file, join_chunks(content, HEAD), False, plain, limits)
    encoding = {"encoding": reading["encoding"]} if reading.keys() - plain.keys() else {}
    return replace(sample, data={**sample.data, **encoding}, spread=True)


def _text_keys(keys: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if keys is None else {key: value for key, value in keys.items() if key not in MARKS}


MARKS = ("missing", "not_missing")
"""Keys that say which texts are missing values."""


def with_marks(sample: Sample, keys: Mapping[str, Any] | None) -> Sample:
    """Return a sample with None in place of marks: those of ``keys``, or if these are None, those found."""
    if keys and keys.get("not_missing"):
        sample = replace(sample, data={**sample.data, "not_missing": list(keys["not_missing"])})
    missing_values = find_marks(sample.columns, DATE) if keys is None else tuple(keys.get("missing", ()))
    if not missing_values:
        return sample
    note = describe_marks(missing_values, dict(zip(sample.names, sample.columns, strict=True)))
    return replace(
        sample,
        columns=tuple(without_marks(values, missing_values) for values in sample.columns),
        data={**sample.data, "missing": list(missing_values)},
        notes=(*sample.notes, note) if note else sample.notes,
    )


def read_at(file: BinaryIO, start: int, limit: int) -> bytes:
    """Return bytes of a file by start and number."""
    file.seek(start)
    return file.read(limit)


def read_chunks(name: str, size: int, read: Callable[[int, int], bytes]) -> bytes:
    """Return the first bytes of a text, and chunks spread over a large one.

    ``read`` returns bytes of the file by start and number.
    """
    if size <= HEAD + CHUNKS * CHUNK:
        return read(0, size)
    head = read(0, HEAD)
    if name.lower().endswith(COMPRESSED):
        return head
    return b"".join((head, *(read(start, CHUNK) for start in chunk_starts(size, HEAD))))


def _text(
    file: str, head: bytes, complete: bool, keys: Mapping[str, Any] | None, limits: IntakeLimits
) -> Sample:
    if complete and file.lower().endswith(".zip") and head.startswith(ZIP):
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(head)) as archive:
            only_member(archive, file)
    check_packed(file, unpack_head(head))
    keys = detect(file, head) if keys is None else keys
    if keys or not file_format(file).is_native or file.lower().endswith(COMPRESSED):
        return _converted(file, head, complete, keys, limits)
    return _csv(file, head, complete, limits)


def _sample_rows(
    file: str, path: Path, file_format: Format, keys: Mapping[str, Any] | None, limits: IntakeLimits
) -> Sample:
    """Read rows of a file that is not text; its format writes them as Parquet, or as CSV text."""
    with path.open("rb") as content:
        if issues := file_format.check(file, content.read(UNPACKED)):
            raise DataError(issues)
    if file_format.has_footer and path.stat().st_size <= WHOLE:
        return _with_notation(read_parquet(file, path, limits, ROWS), keys)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "sample"
        options = {key: value for key, value in (keys or {}).items() if key in _OF_TABLES}
        arguments = str(path.absolute()), file_format.name, options, str(target)
        # The caller runs in a sandbox itself if the file has a footer.
        sampled = (
            write_sample(*arguments)
            if file_format.has_footer
            else sandbox.run(write_sample, *arguments, limits=PASS, file=file)
        )
        try:
            if is_parquet(target):
                sample = _with_notation(read_parquet(file, target, limits, ROWS), keys)
                where = f"rows 1 to {sampled['rows']:,}" if sampled["spread"] else IN_TIME
                return replace(
                    sample,
                    complete=sample.seen == sampled["rows"],
                    rows=sampled["rows"],
                    spread=sampled["spread"],
                    extent="" if sampled["complete"] else where,
                )
            text = target.read_bytes()
            reading = detect(file, text) if keys is None else keys
            reading = {key: value for key, value in reading.items() if key in file_format.keys - {"sheet"}}
            sample = _text("table.csv", text, sampled["complete"], reading, limits)
        except DataError as error:
            raise DataError([replace(issue, file=file) for issue in error.issues]) from None
    data = {**sample.data, **({"sheet": sampled["table"]} if len(sampled["tables"]) > 1 else {})}
    chosen = keys is not None and "sheet" in keys
    note = "" if chosen else sheets_note(sampled["table"], sampled["tables"])
    notes = (*sample.notes, note) if note else sample.notes
    return replace(sample, data=data, sheets=tuple(sampled["tables"]), notes=notes)


def _with_notation(sample: Sample, keys: Mapping[str, Any] | None) -> Sample:
    """Return a sample of Parquet with plain numbers in place of texts in another notation.

    It is that of ``keys``, or if these are None, as detected.
    """
    from dmls_core.data.formats.plain_csv import plain_numbers
    from dmls_core.spec.data_table import Data

    columns = dict(zip(sample.names, sample.columns, strict=True))
    types = dict(zip(sample.names, sample.types, strict=True))
    texts = {name: values for name, values in columns.items() if types[name] == "String"}
    if keys is None:
        cells = {name: [(text or "").strip() for text in values] for name, values in texts.items()}
        keys = detect_notation(cells)
    keys = {key: value for key, value in keys.items() if key in NOTATION}
    if not keys:
        return sample
    columns |= plain_numbers(texts, Data.model_validate(keys))
    return replace(sample, columns=tuple(columns.values()), data={**sample.data, **keys})


_OF_TABLES = {"sheet", "decimal"}
"""Keys that ``Format.sample`` applies; the others are those of the text that it writes."""


def write_sample(path: str, format_name: str, options: dict[str, Any], target: str) -> dict[str, Any]:
    """Write rows of a file that is not text; return the ``FileSample`` as JSON data. Runs in the sandbox."""
    from dmls_core.data.formats.damage import readable
    from dmls_core.spec.data_table import Data

    with readable(Path(path)):
        return asdict(
            load_format(format_name).sample(
                Path(path), Data.model_validate(options), Path(target), rows=ROWS, seconds=SECONDS
            )
        )


def _converted(
    file: str, head: bytes, complete: bool, keys: Mapping[str, Any], limits: IntakeLimits
) -> Sample:
    """Read the first rows of a file that is converted first, in a sandbox."""
    from dmls_core.data.formats.conversion import convert_all, line_shift
    from dmls_core.spec.data_table import Data

    plain = unpack_head(head)
    if head and not plain:
        hint = "it is damaged or incomplete: upload it again"
        raise DataError(ValidationIssue("the file cannot be unpacked", hint, file=file))
    complete = complete and len(plain) < UNPACKED
    if not complete:
        end = line_end_utf16(plain) if keys.get("encoding") == "utf-16" else b"\n"
        plain = whole_beginning(plain, end)
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
    has_all = complete and sample.complete
    shown = {key: value for key, value in keys.items() if (key, value) != ("format", format_of(file))}
    rows = sample.rows if complete else None
    return replace(sample, complete=has_all, rows=rows, data=shown, spread=complete)


def _csv(file: str, head: bytes, complete: bool, limits: IntakeLimits) -> Sample:
    text = decode_head(file, head, complete=complete)
    rows = read_rows(file, text, complete=complete)
    first = next(rows, None)
    if first is None:
        raise DataError(
            ValidationIssue(
                "the header is longer than the checked part of the file", hint="shorten it", file=file, line=1
            )
        )
    header = CsvRow(first.line, [name.strip() for name in first.cells])
    if issues := [*check_names(file, header, limits.columns), *unfit_names(file, header.cells)]:
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
                key=ragged_column(header.cells, len(odd.cells)),
                found=f"{len(odd.cells)} cells",
                expected=f"{width} cells",
            )
        )
    # A sorted file would mislead by its first rows.
    cells = [body[at].cells for at in _spread(len(body))]
    columns = tuple(zip(*cells, strict=True))
    number = len(body) if complete else None
    return Sample(
        tuple(header.cells),
        columns,
        number == len(cells),
        number,
        spread=complete,
        quoted=quoted_texts(text),
    )


def _spread(rows: int) -> list[int]:
    """Return the positions of rows to look at: the first ones, and others all over the file."""
    if rows <= ROWS:
        return list(range(rows))
    others = ROWS - FIRST
    return [*range(FIRST), *(FIRST + at * (rows - FIRST) // others for at in range(others))]
