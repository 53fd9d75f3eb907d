"""Check the columns of data files as the trainer does: of all rows, or of a sample of a large file.

The files are read in a sandbox. The sample of a text has its first rows and records from chunks spread over
the whole file; a compressed one is unpacked for this. Large Parquet files are sampled in the same way, up to
``COPIED`` bytes; of larger ones, and of those that take too much memory, only the footers are read, which
have the columns and their types.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dmls_core import sandbox
from dmls_core.data.formats.base import is_parquet
from dmls_core.data.formats.compression import UNPACKED
from dmls_core.data.formats.damage import readable
from dmls_core.data.formats.encodings import utf16_codec
from dmls_core.data.formats.names import COMPRESSED, load_format
from dmls_core.data.formats.parquet_footer import read_footer
from dmls_core.data.formats.thinning import CHUNK, span, thin_text, whole_beginning, whole_records
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.file_sample import chunk_starts

if TYPE_CHECKING:
    from dmls_core.data.formats.base import Format
    from dmls_core.settings import IntakeLimits
    from dmls_core.spec import Spec
    from dmls_core.spec.data_table import Data
    from dmls_core.spec.values import Encoding
    from dmls_core.store import ObjectInfo

FILES = 16
"""Files that are sampled if there are more."""

CELLS = 30_000_000
"""Cells of a Parquet file of which all rows are read: a small file may unpack to any size."""

COPIED = 1 << 30
"""Bytes of all compressed files, or of all Parquet files, that are copied to sample their rows."""

_ROWS = 20_000
"""Rows of a large Parquet file that are checked."""

_SECONDS = 60.0
"""Time to read rows of large files."""

_STEP = 16 << 20

LIMITS = sandbox.Limits(memory=2 << 30, seconds=300, cpu_seconds=300)


class Files(Protocol):
    """Files that are read by their keys, as those of a ``Store``."""

    def read(self, key: str, *, limit: int | None = None, start: int = 0) -> tuple[bytes, ObjectInfo]:
        """See ``Store.read``."""
        ...

    def download(self, key: str, path: Path) -> ObjectInfo:
        """See ``Store.download``."""
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    """Records of a sample from ``line`` on: near byte ``offset`` of the file, or in its line ``at``."""

    line: int
    offset: int = 0
    at: int = 0


def is_whole(files: Sequence[ObjectInfo], spec: Spec, limits: IntakeLimits) -> bool:
    """Return whether all rows that a run reads are checked."""
    return sum(file.size for file in files) <= limits.whole_bytes and not spec.chosen_by_run


def sample_note(files: Sequence[ObjectInfo], spec: Spec, limits: IntakeLimits) -> str:
    """Return a sentence on what is left to the training; empty if all rows were checked."""
    if not files or is_whole(files, spec, limits):
        return ""
    return "Not all of the data was checked: each run checks all of its rows."


@dataclass(frozen=True, slots=True)
class Findings:
    """The issues for which the data is refused, and notes that refuse nothing (see ``data_notes``)."""

    issues: tuple[ValidationIssue, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Findings:
        """Build findings from the result of ``examine``."""
        return cls(tuple(ValidationIssue(**issue) for issue in document["issues"]), tuple(document["notes"]))


_ALL_INTERVALS = "all rows are checked, also those of the current interval, which no run has read yet"


def check_columns(
    store: Files, files: Sequence[ObjectInfo], data_format: str, spec: Spec, limits: IntakeLimits
) -> Findings:
    """Return what the trainer would find in the columns of the files.

    Raises:
        ObjectMissingError: a file no longer exists.
    """
    total = sum(file.size for file in files)
    all_rows = total <= limits.whole_bytes
    file_format = load_format(data_format)
    footers = not all_rows and file_format.has_footer and total > COPIED
    packed = any(file.key.lower().endswith(COMPRESSED) for file in files)
    if not all_rows and len(files) > FILES:
        files = [files[at * len(files) // FILES] for at in range(FILES)]
    most = COPIED // max(1, len(files))
    archives = any(file.key.lower().endswith(".zip") and file.size > most for file in files)
    if not all_rows and (archives or not (file_format.is_text or file_format.has_footer)):
        return Findings()  # no sample can be taken: the end of an archive says what is in it
    with tempfile.TemporaryDirectory() as folder:
        paths, parts, unpacked = list[str](), dict[str, list[_Part]](), 0.0
        read: list[str] = []
        for number, file in enumerate(files):
            path = Path(folder) / str(number) / file.key.rpartition("/")[2]
            path.parent.mkdir()
            if all_rows or (file_format.has_footer and not footers):
                store.download(file.key, path)
            elif footers:
                _copy_footer(store, file, path)
            elif packed:
                try:
                    parts[path.name], size, part = _unpack_sample(
                        store, file, path, spec, _SECONDS / len(files), most
                    )
                except DataError as error:
                    return Findings(error.issues)
                unpacked += size
                read.append(part)
            else:
                parts[path.name] = _copy_sample(store, file, path, limits.head_bytes, spec.data.encoding)
            paths.append(str(path))
        sampled = sum(Path(path).stat().st_size for path in paths)
        share = 1.0 if all_rows or file_format.has_footer else min(1.0, sampled / max(1.0, unpacked or total))
        scope = "footer" if footers else "all" if is_whole(files, spec, limits) else "sample"
        data = spec.data.model_copy(update={"format": data_format})
        if parts and (packed or spec.data.encoding == "utf-16"):
            data = data.model_copy(update={"encoding": "utf-8"})  # the samples are
        document = spec.model_copy(update={"data": data}).as_json()
        try:
            answer = sandbox.run(
                examine,
                *(paths, document, scope, share),
                limits=LIMITS,
                file=files[0].key.rpartition("/")[2],
            )
        except DataError as error:  # the sandbox itself: the file crashed its reader, or exceeded a limit
            return Findings(error.issues)
    findings = Findings.from_json(answer)
    notes = (*findings.notes, _read_note(read)) if read and not findings.issues else findings.notes
    return Findings(tuple(_placed(issue, parts) for issue in findings.issues), notes)


def _read_note(read: Sequence[str]) -> str:
    return f"Rows from all over {', '.join(read[:4])}{' and others' * (len(read) > 4)} were checked."


def examine(paths: list[str], document: dict[str, Any], scope: str, share: float = 1.0) -> dict[str, Any]:
    """Return the findings about files as JSON data; runs in the sandbox.

    ``scope`` is ``all``, ``sample`` (only what holds for any further rows counts) or ``footer`` (only the
    columns' names and types are checked). ``share`` is the part of the data that the files have.
    """
    from dmls_core.data.formats.conversion import convert, original_lines
    from dmls_core.data.table.memory import check_memory, measure_table
    from dmls_core.hardware import parse_memory
    from dmls_core.spec import Spec
    from dmls_core.spec.data_table import Data

    spec = Spec.from_json(document)
    file_format = load_format(spec.data.format or "csv")
    notes: list[str] = []
    read: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            if scope == "sample" and file_format.has_footer:
                share, total = _thin_all(file_format, spec.data, paths)
                read = [f"rows 1 to {total:,}"]
            data = Data(format=spec.data.format) if scope == "footer" else spec.data  # there are no rows
            files = [convert(Path(path), data, Path(folder) / str(at)) for at, path in enumerate(paths)]
            with original_lines(paths[0], spec.data):
                if spec.resources.memory and not spec.chosen_by_run:
                    size = measure_table(files, spec)
                    rows = round(size.rows / share)
                    check_memory(replace(size, rows=rows), parse_memory(spec.resources.memory))
                notes = [*_check(files, spec, scope), *([_read_note(read)] if read else [])]
            if not (spec.data.sheet or file_format.is_text or file_format.has_footer):
                notes += _sheet_notes(file_format, Path(paths[0]), spec.data)
    except DataError as error:
        issues = error.issues
    else:
        return {"issues": [], "notes": notes}
    with suppress(DataError):  # of a damaged file, whose issues say so already
        issues = tuple(_explained(issues, paths, spec))
    if spec.chosen_by_run and spec.columns.time:
        issues = tuple(map(_with_interval, issues))
    return {"issues": [issue.as_json() for issue in issues], "notes": []}


def _with_interval(issue: ValidationIssue) -> ValidationIssue:
    if not issue.line:
        return issue
    return replace(issue, hint="; ".join(filter(None, [issue.hint, _ALL_INTERVALS])))


def _sheet_notes(file_format: Format, path: Path, data: Data) -> list[str]:
    """Return what is said of the tables of a file that no run reads."""
    from dmls_core.intake.data_notes import sheets_note

    with tempfile.NamedTemporaryFile() as text, readable(path):
        sample = file_format.sample(path, data, Path(text.name), rows=_ROWS, seconds=_SECONDS)
    note = sheets_note(sample.table, sample.tables)
    return [note] if note else []


def _explained(issues: Sequence[ValidationIssue], paths: Sequence[str], spec: Spec) -> list[ValidationIssue]:
    """Return the issues, or their cause if a file is written otherwise than ``[data]`` says.

    Raises:
        DataError: the file is damaged.
    """
    from dmls_core.data.formats.detection import NOTATION, explain

    first, data = issues[0], spec.data
    file_format = load_format(data.format or "csv")
    path = next((Path(path) for path in paths if Path(path).name == first.file), None)
    if path is None or not file_format.keys:
        return list(issues)
    # The file as a whole is written otherwise if its header, or a character, cannot be read.
    wrong_text = first.line == data.skip_rows + 1 or first.message.startswith("the text is not ")
    only = None if wrong_text else NOTATION
    if file_format.is_text:
        with readable(path), path.open("rb") as file:
            return explain(first.file, issues, file.read(UNPACKED), data.model_dump(), only=only)
    with tempfile.NamedTemporaryFile() as text:
        with readable(path):
            sample = file_format.sample(path, data, Path(text.name), rows=_ROWS, seconds=_SECONDS)
        explained = explain(
            first.file, issues, text.read(), data.model_dump() | {"delimiter": ","}, only=only
        )
    if explained == list(issues) and only is None and len(sample.tables) > 1:
        listed = ", ".join(repr(name) for name in sample.tables)[:400]
        hint = f"if the table is in another of the sheets {listed}: set [data] sheet"
        explained = [replace(issue, hint=f"{issue.hint}; {hint}".removeprefix("; ")) for issue in explained]
    return explained


def _check(files: list[Path], spec: Spec, scope: str) -> list[str]:
    """Return the notes on files; raise ``DataError`` with their issues."""
    from dmls_core.data.formats.data_files import open_source
    from dmls_core.data.split.holdout import hold_out
    from dmls_core.data.split.row_roles import read_row_roles
    from dmls_core.data.table.reader import check_schema, missing_column, read_table
    from dmls_core.data.validation import check_expectations
    from dmls_core.intake.table_notes import describe_table
    from dmls_core.settings import DataLimits

    data_format = spec.data.format
    if spec.data.numbers:
        names = open_source(files[0], data_format, DataLimits.from_environment()).names
        if absent := [name for name in spec.data.numbers if name not in names]:
            raise DataError(missing_column(absent[0], names, files[0].name, "data.numbers", None))
    if scope == "footer":
        check_schema(files, spec.columns, data_format=data_format)
        return []
    large = _thin(files) if not load_format(data_format or "csv").is_text and is_parquet(files[0]) else False
    sample = scope == "sample" or large
    table = read_table(
        files,
        spec.columns,
        spec.task,
        data_format=data_format,
        not_missing=spec.data.not_missing,
        sample=sample,
    )
    roles = read_row_roles(files, spec, None if sample else table.row_mask, sample=sample)
    notes = describe_table(table, files, spec, sample=sample)
    if not sample:
        hold_out(table, roles, spec)
    del table, roles
    if not spec.chosen_by_run:  # these runs check the rows that each of them chooses
        check_expectations(spec, files, sample=sample)
    return notes


def _thin_all(file_format: Format, data: Data, paths: Sequence[str]) -> tuple[float, int]:
    """Replace files by rows from all over them; return their share, and the number of all rows."""
    from dmls_core.settings import DataLimits

    limits = DataLimits.from_environment()
    total = sampled = 0
    for path in map(Path, paths):
        file_format.open(path, limits)  # raises if it has too many columns
        thinned = path.with_name("thinned")
        rows, seconds = _ROWS // len(paths), _SECONDS / len(paths)
        with readable(path):
            total += file_format.sample(path, data, thinned, rows=rows, seconds=seconds).rows or 0
        thinned.replace(path)
        sampled += file_format.open(path, limits).count_rows()
    return sampled / max(1, total), total


def _thin(files: Sequence[Path]) -> bool:
    """Replace Parquet files with too many cells by some of their rows; return whether there are any."""
    import polars as pl

    from dmls_core.data.formats.parquet_source import reading

    large = False
    for path in files:
        with reading(path):
            scan = pl.scan_parquet(path, glob=False)
            rows, columns = int(scan.select(pl.len()).collect().item()), len(scan.collect_schema())
            if (step := -(-rows * columns * len(files) // CELLS)) > 1:
                thinned = path.with_name("thinned")
                scan.gather_every(step).sink_parquet(thinned)
                thinned.replace(path)
                large = True
    return large


def _copy_footer(store: Files, file: ObjectInfo, path: Path) -> None:
    """Write the end of a Parquet file to a sparse file of its size."""
    tail = read_footer(file.size, lambda start, limit: store.read(file.key, start=start, limit=limit)[0])
    with path.open("wb") as sparse:
        sparse.seek(max(0, file.size - len(tail)))
        sparse.write(tail)


def _copy_sample(
    store: Files, file: ObjectInfo, path: Path, head_bytes: int, encoding: Encoding
) -> list[_Part]:
    """Write the beginning of a CSV and records from all over it to a file, of UTF-16 as UTF-8."""
    head, _ = store.read(file.key, limit=head_bytes)

    def text(part: bytes) -> bytes:
        return part.decode(utf16_codec(head), "replace").encode() if encoding == "utf-16" else part

    if len(head) == file.size:
        path.write_bytes(text(head))
        return []
    first = whole_beginning(text(head))
    lines, parts = first.count(b"\n"), []
    with path.open("wb") as sample:
        sample.write(first)
        for start in chunk_starts(file.size, len(head)):
            data, _ = store.read(file.key, start=start, limit=CHUNK)
            if not (records := whole_records(text(data))):
                continue
            sample.write(records)
            parts.append(_Part(lines + 1, start))
            lines += records.count(b"\n")
    return parts


def _unpack_sample(
    store: Files, file: ObjectInfo, path: Path, spec: Spec, seconds: float, most: int
) -> tuple[list[_Part], float, str]:
    """Write records from all over a text, of which up to ``most`` bytes are copied.

    Return their positions, its size, and what was read.
    """
    packed = path.with_name("packed") / path.name
    packed.parent.mkdir()
    cut = file.size > most
    if cut:
        with packed.open("wb") as copy:
            for at in range(0, most, _STEP):
                copy.write(store.read(file.key, start=at, limit=min(_STEP, most - at))[0])
    else:
        store.download(file.key, packed)
    arguments = str(packed), spec.data.encoding, str(path), UNPACKED, seconds, cut
    thinned = sandbox.run(thin_text, *arguments, limits=LIMITS, file=path.name)
    packed.unlink()
    size = thinned["bytes"] * (file.size / most if cut else 1)
    read = f"{path.name} ({span(thinned, most, cut)})"
    return [_Part(line, at=line_of_text) for line, line_of_text in thinned["parts"]], size, read


def _placed(issue: ValidationIssue, parts: dict[str, list[_Part]]) -> ValidationIssue:
    """Replace a line of the sample, beyond the file's beginning, by its line in the file."""
    inside = [part for part in parts.get(issue.file, ()) if issue.line and part.line <= issue.line]
    if not inside:
        return issue
    if (part := inside[-1]).at:
        return replace(issue, line=part.at + (issue.line or 0) - part.line)
    return replace(issue, line=None, message=f"{issue.message} (near byte {inside[-1].offset:,} of the file)")
