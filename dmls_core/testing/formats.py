"""Tests that every file format must pass."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from dmls_core import extensions, sandbox
from dmls_core.data.formats.base import Format
from dmls_core.data.formats.conversion import convert, convert_all
from dmls_core.data.formats.data_files import open_source
from dmls_core.data.formats.detection import detect
from dmls_core.data.formats.names import format_of, formats, load_format
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec.data_table import Data

ColumnValues = Mapping[str, Sequence[Any]]

COLUMNS: ColumnValues = {
    "number": [1.5, -2.25, 1e-7, None],
    "count": [1, 0, -7, 9_007_199_254_740_991],
    "text": ["plain", "Köln 東京 ½", 'a "quote", a comma; and a | bar', None],
    "day": ["2026-01-31", "2024-02-29", None, "1999-12-31"],
}
"""Values that a file must keep: numbers, missing values, texts beyond ASCII, quotes, and dates."""

LARGE_ROWS = 100_000

SECONDS = 30.0
"""CPU and wall seconds in which a large file is sampled."""

SAMPLE_ROWS = 2_000


class FormatSuite:
    r"""Tests of a file format; a subclass names it as its entry point does, and defines ``write``.

    Examples:
        pytest runs every test; here, one is called by hand:

        >>> import json
        >>> from dmls_core.testing import FormatSuite
        >>> class TestJsonLines(FormatSuite):
        ...     name = "jsonl"
        ...     def write(self, columns, path):
        ...         rows = (dict(zip(columns, row)) for row in zip(*columns.values()))
        ...         path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        >>> TestJsonLines().test_it_is_registered()
    """

    name: ClassVar[str]

    data: ClassVar[Data] = Data()
    """``[data]`` with which the files of ``write`` are read."""

    def write(self, columns: ColumnValues, path: Path) -> None:
        """Write columns of equal length to a file; ``None`` is a missing value, and dates are texts."""
        raise NotImplementedError

    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        """A file with ``COLUMNS``."""
        return self.written(COLUMNS, tmp_path)

    @property
    def format(self) -> Format:
        return load_format(self.name)

    def written(self, columns: ColumnValues, folder: Path) -> Path:
        path = folder / f"table{self.format.suffixes[0]}"
        self.write(columns, path)
        return path

    def rows(self, path: Path, folder: Path, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the values of a file as text, as training reads it."""
        plain = convert(path, self.data, folder / "converted")
        source = open_source(plain, self.name, DataLimits.from_environment())
        frame = source.read(dict.fromkeys(names, pl.String()))
        return {
            name: [None if value is None or value == "" else value for value in frame[name]] for name in names
        }

    # -- the tests -------------------------------------------------------------------------------------

    def test_it_is_registered(self) -> None:
        """The entry point yields a complete format, whose name and suffixes are its own."""
        one = extensions.load("dmls.formats", self.name)()

        assert isinstance(one, Format)
        assert one.name == self.name
        assert one.title
        assert one.suffixes == tuple(suffix.lower() for suffix in one.suffixes)
        assert all(suffix.startswith(".") and suffix.count(".") == 1 for suffix in one.suffixes)
        for suffix in one.suffixes:
            assert format_of(f"table{suffix}") == self.name
            assert format_of(f"TABLE{suffix.upper()}") == self.name
            assert format_of(f"table{suffix}.gz") == (self.name if one.is_text else None)

    def test_a_spec_may_name_it(self) -> None:
        from dmls_core.models import load_spec

        head = 'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[data]\n'
        assert load_spec(f'{head}format = "{self.name}"'.encode()).data.format == self.name

    def test_it_detects_its_files(self, file: Path) -> None:
        """Of a text, the name may be all that shows its format."""
        head = file.read_bytes()[: 1 << 16]

        if self.format.is_text:
            assert detect(file.name, head).get("format", "csv") == self.name
        else:
            assert self.format.detect(head) is not None
            assert self.format.check(file.name, head) == []

    def test_it_does_not_detect_files_of_other_formats(self, file: Path) -> None:
        """No other format that is known by its first bytes takes the file for its own, and vice versa."""
        head = file.read_bytes()[: 1 << 16]
        others = {
            "csv": b"a,b\n1,2\n",
            "jsonl": b'{"a": 1}\n',
            "parquet": b"PAR1" + bytes(60),
            "excel": b"PK\x03\x04" + bytes(60),
        }
        taken = [one.name for one in formats() if one.name not in (self.name, "csv")]
        assert [name for name in taken if load_format(name).detect(head) is not None] == []
        if self.name != "csv":  # any text may be CSV
            formats_of_file = [
                other for other, start in others.items() if self.format.detect(start) is not None
            ]
            assert formats_of_file in ([], [self.name])

    def test_values_arrive_as_they_were_written(self, file: Path, tmp_path: Path) -> None:
        """Numbers, missing values, texts beyond ASCII, quotes and dates survive."""
        rows = self.rows(file, tmp_path, list(COLUMNS))

        for name in ("text", "day"):
            assert rows[name] == list(COLUMNS[name]), name
        for name in ("number", "count"):
            values = [None if value is None else float(value) for value in rows[name]]
            assert values == pytest.approx(list(COLUMNS[name]), rel=1e-12), name

    def test_a_column_of_numbers_is_one(self, file: Path, tmp_path: Path) -> None:
        plain = convert(file, self.data, tmp_path / "converted")
        source = open_source(plain, self.name, DataLimits.from_environment())

        types = dict(source.column_types)
        assert types["number"] == "number"
        assert types["count"] in ("integer", "number")

    def test_it_is_converted_in_the_sandbox(self, file: Path, tmp_path: Path) -> None:
        """The module can be imported in a process with limits, and keeps no state."""
        options = self.data.model_dump(mode="json")
        (path,) = sandbox.run(convert_all, [str(file)], options, str(tmp_path / "out"), file=file.name)

        source = open_source(Path(path), self.name, DataLimits.from_environment())
        assert list(source.names) == list(COLUMNS)

    @pytest.mark.parametrize("damage", ["cut", "empty", "another", "zeros"])
    def test_a_damaged_file_gives_one_clear_error(self, file: Path, tmp_path: Path, damage: str) -> None:
        """The error names the file as its user knows it."""
        content = file.read_bytes()
        damaged = {
            "cut": content[: len(content) // 2],
            "empty": b"",
            "another": b"%PDF-1.7\n" + bytes(range(256)) * 4,
            "zeros": bytes(len(content)),
        }[damage]
        file.write_bytes(damaged)
        if damage == "cut" and self.format.is_text:
            return  # the rows that are there may be read
        with pytest.raises(DataError) as raised:
            self.rows(file, tmp_path, list(COLUMNS))

        assert {issue.file for issue in raised.value.issues} == {file.name}
        assert all(issue.message and "\n" not in str(issue) for issue in raised.value.issues)

    def test_a_large_file_is_sampled_in_bounded_time_and_memory(self, tmp_path: Path) -> None:
        """The sample is small, and from all over the file or from its beginning, as it says."""
        if self.format.is_text:
            pytest.skip("DMLS samples lines of text itself")
        numbers = range(LARGE_ROWS)
        columns: ColumnValues = {"row": list(numbers), "text": [f"row {number}" for number in numbers]}
        path = self.written(columns, tmp_path)
        began = time.monotonic()
        sampled = sandbox.run(
            sample_rows, str(path), self.name, str(tmp_path / "sample"), SAMPLE_ROWS, file=path.name
        )

        assert time.monotonic() - began < SECONDS
        assert sampled["rows"] in (None, LARGE_ROWS)
        assert 0 < sampled["sampled"] < LARGE_ROWS
        if sampled["spread"]:
            assert sampled["last"] > LARGE_ROWS * 0.8


def sample_rows(path: str, name: str, target: str, rows: int) -> dict[str, Any]:
    """Sample a file; return what ``sample`` says, and how many rows there are. Runs in the sandbox."""
    one = load_format(name)
    sample = one.sample(Path(path), Data(), Path(target), rows=rows, seconds=SECONDS)
    source = one.open(Path(target), DataLimits.from_environment())
    frame = source.read({"row": pl.Float64()})
    return {
        "rows": sample.rows,
        "spread": sample.spread,
        "sampled": frame.height,
        "last": float(frame["row"].max() or 0),  # type: ignore[arg-type]
    }
