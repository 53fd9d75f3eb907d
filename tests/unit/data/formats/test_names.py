"""Which format a file has by its name, and what is wrong with formats that others register."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_core import extensions
from dmls_core.data.formats import Format, names
from dmls_core.errors import PlatformError
from dmls_core.spec.data_table import Data


class Clashing(Format):
    name, title, suffixes = "clashing", "a clash", (".csv",)

    def detect(self, _head):
        return None

    def convert(self, path, _data, target):
        target.write_bytes(path.read_bytes())


class Incomplete(Format):
    name, title, suffixes = "incomplete", "incomplete", (".part",)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch):
    def register(**classes: type) -> None:
        load, listed = extensions.load, extensions.names
        monkeypatch.setattr(extensions, "load", lambda group, name: classes.get(name) or load(group, name))
        monkeypatch.setattr(extensions, "names", lambda group: (*listed(group), *classes))
        clear()

    def clear() -> None:
        for cached in (names.formats, names.load_format, names._by_suffix):
            cached.cache_clear()

    yield register
    clear()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.csv", "csv"),
        ("A.TSV.GZ", "csv"),
        ("a.jsonl.zst", "jsonl"),
        ("a.zip", "csv"),
        ("a.xlsb", "excel"),
        ("a.parquet", "parquet"),
        ("a.parquet.gz", None),
        ("a.gz", None),
        ("a", None),
    ],
)
def test_the_name_shows_the_format(name: str, expected: str | None) -> None:
    assert names.format_of(name) == expected


def test_only_plain_csv_and_parquet_are_read_as_they_are() -> None:
    plain = [end for end in names.data_endings() if not names.needs_conversion(f"a{end}", Data())]

    assert plain == [".csv", ".parquet", ".tsv", ".txt"]
    assert names.plain_endings() == (".csv", ".parquet")
    assert names.needs_conversion("a.csv", Data(delimiter=";"))
    assert names.needs_conversion("a.parquet", Data(missing=("-",)))


def test_two_formats_with_the_same_suffix_are_an_error_that_names_both(registered) -> None:
    registered(clashing=Clashing)

    with pytest.raises(PlatformError, match=r"end in \.csv: csv and clashing"):
        names.format_of("a.csv")


def test_an_incomplete_class_is_an_error_that_names_what_is_missing(registered) -> None:
    registered(incomplete=Incomplete, other=Path)

    with pytest.raises(PlatformError, match="'incomplete' in 'dmls.formats': .*convert"):
        names.load_format("incomplete")
    with pytest.raises(PlatformError, match="is not a subclass of Format"):
        names.load_format("other")
    with pytest.raises(PlatformError, match="no extension 'unknown'"):
        names.load_format("unknown")
