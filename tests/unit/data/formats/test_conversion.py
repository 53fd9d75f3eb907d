"""Files in other formats and dialects are read as the same table, and messages name their lines."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmls_core.data.formats import compression
from dmls_core.data.formats.compression import load_zstd
from dmls_core.data.formats.conversion import convert, original_lines
from dmls_core.data.formats.detection import describe, detect
from dmls_core.data.table.reader import read_table
from dmls_core.errors import DataError
from dmls_core.spec import Columns
from dmls_core.spec.data_table import Data

compress_zstd = load_zstd().compress
PLAIN = 'a,b,y\n1.5,Süd,u\n-2000.25,"x,y",v\n,Süd,u\n'
EUROPE = 'a;b;y\n1,5;Süd;u\n-2.000,25;"x,y";v\n;Süd;u\n'
LINES = [{"a": 1.5, "b": "Süd", "y": "u"}, {"a": -2000.25, "b": "x,y", "y": "v"}, {"b": "Süd", "y": "u"}]
SPARSE = "".join(f'{{"k{number}": 1}}\n' for number in range(9_000))
EUROPEAN = {"delimiter": ";", "decimal": ",", "thousands": "."}


def zipped(*contents: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, content in enumerate(contents):
            archive.writestr(f"{number}.csv", content)
    return out.getvalue()


def encrypted(archive: bytes) -> bytes:
    """Return the archive with the marks of encryption in both of its headers."""
    at = archive.rindex(b"PK\x01\x02") + 8
    return archive[:6] + b"\1" + archive[7:at] + b"\1" + archive[at + 1 :]


FILES: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "plain": ("d.csv", PLAIN.encode(), {}),
    "europe": ("d.csv", EUROPE.encode(), EUROPEAN),
    "windows": (
        "d.csv",
        EUROPE.replace("\n", "\r\n").encode("cp1252"),
        {"encoding": "windows-1252", **EUROPEAN},
    ),
    "utf-16": ("d.csv", PLAIN.encode("utf-16"), {"encoding": "utf-16"}),
    "tabs": (
        "d.tsv",
        PLAIN.replace('"x,y"', "x§y").replace(",", "\t").replace("§", ",").encode(),
        {"delimiter": "\t"},
    ),
    "title": ("d.csv", f"Report\n\n{PLAIN}".replace("y\n", "y\n\n").encode(), {"skip_rows": 2}),
    "gzip": ("d.csv.gz", gzip.compress(PLAIN.encode()), {}),
    "zstd": ("d.csv.zst", compress_zstd(PLAIN.encode()), {}),
    "zip": ("d.zip", zipped(EUROPE.encode()), EUROPEAN),
    "json": ("d.jsonl", "".join(json.dumps(line) + "\n" for line in LINES).encode(), {}),
}


def read(folder: Path, name: str, content: bytes, task: Any = "classification", **keys: Any) -> Any:
    path, data = folder / name, Data(**keys)
    path.write_bytes(content)
    converted = convert(path, data, folder / "out")
    with original_lines(name, data):
        return read_table([converted], Columns(target="y"), task, data_format=data.format)


@pytest.mark.parametrize("kind", FILES)
def test_the_table_is_the_same(tmp_path: Path, kind: str) -> None:
    name, content, keys = FILES[kind]
    table = read(tmp_path, name, content, **keys)
    assert table.feature_names == ("a", "b")
    assert table.columns[1].categories == ("Süd", "x,y")
    assert table.matrix[:2].tolist() == [[1.5, 0], [-2000.25, 1]]
    assert table.matrix[2, 0] != table.matrix[2, 0]
    assert table.labels == ("u", "v")


@pytest.mark.parametrize("kind", FILES)
def test_the_dialect_is_detected(kind: str) -> None:
    name, content, keys = FILES[kind]
    found = detect(name, content)
    assert {key: value for key, value in found.items() if key != "format"} == keys
    assert describe(name, found) or kind == "plain"


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("1,2,x\n2,3,y\n4,5,z\n", {"header": False}),
        ("0,1,2\n5,6,7\n8,9,1\n", {}),
        ("country,2020,2021\nAT,1,2\nDE,3,4\n", {}),
        ("a;y\n1,234;u\n2,345;v\n", {"delimiter": ";", "decimal": ","}),
        ("a;y\n1.234;u\n2.345;v\n", {"delimiter": ";"}),
        ('a,y\n"1,234.5",u\n"12,345.5",v\n', {"thousands": ","}),
        ("a,y\n1 234.5,u\n12 345.5,v\n", {"thousands": " "}),
        ("Report;;;\n\na;b;c;y\n1;2;3;4\n", {"delimiter": ";", "skip_rows": 2}),
        ("a\n1\n2\n", {}),
        ("a|y\n1|2\n", {"delimiter": "|"}),
        ("a,b\nx;y,1\nz;w,2\n", {}),
        ("", {}),
    ],
    ids=str,
)
def test_detection(text: str, keys: dict[str, Any]) -> None:
    assert detect("d.csv", text.encode()) == keys


@pytest.mark.parametrize("head", [b"\x1f\x8bno", b"\x1f\x8b\x08" + b"\xff" * 40, b"PK\3\4" + b"\xff" * 40])
def test_a_damaged_archive_is_no_dialect(head: bytes) -> None:
    assert detect("d.csv", head).keys() <= {"encoding", "delimiter"}


def test_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("1,2\n3,4\n")
    assert convert(path, Data(header=False), tmp_path / "out").read_text() == "column_1,column_2\n1,2\n3,4\n"


@pytest.mark.parametrize(
    ("name", "content", "keys", "line", "message"),
    [
        ("d.csv", "a;y\n1;u\n2;v;w\n", {"delimiter": ";"}, 3, "has 3 fields, the header 2"),
        ("d.csv", "a;y\n1;u\n2\n", {"delimiter": ";"}, 3, "has 1 field, the header 2"),
        ("d.csv", "T\n\na,y\n1,u\n2,v\nx,v\n", {"skip_rows": 2}, 6, "is not a number"),
        ("d.csv", "a;y\n1,5;u\n2.5;v\n", {"delimiter": ";", "decimal": ","}, 3, "another notation"),
        ("d.jsonl", '{"a":1,"y":"u"}\n{"a":"x","y":"v"}\n{"a":2,"y":"v"}\n', {}, 2, "is not a number"),
        ("d.jsonl", '{"a":1}\n[1]\n', {}, 2, "is not a JSON object"),
        ("d.jsonl", '{"a":null}\n{"a":[1],"y":"u"}\n', {}, 2, "contains lists or objects"),
        ("d.jsonl", '{"a":1}\n{"a":[1],"y":"u"}\n', {}, 2, "contains lists or objects"),
        ("d.jsonl", '{"a":true,"y":"u"}\n{"a":1,"y":"u"}\n', {}, 2, "other values of this key are true or"),
        ("d.jsonl", '{"a":1,"y":"u"}\n\n{"a":NaN,"y":"u"}\n', {}, 3, "NaN is not a number of JSON"),
        ("d.jsonl", '{"a":1,"y":"u"}\n{"a":2,"a":3,"y":"u"}\n', {}, 2, "the key 'a' occurs twice"),
        ("d.zip", zipped(b"a", b"b"), {}, None, "must have one file"),
        ("d.zip", zipped(zipped(b"xl")), {}, None, "has a workbook"),
        ("d.csv.gz", gzip.compress(b"a,y\n1,u\n")[:-9], {}, None, "cannot be read"),
        ("d.csv.gz", b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 40, {}, None, "cannot be read"),
        ("d.csv.gz", b"\x1f\x8bno", {}, None, "cannot be read"),
        ("d.zip", encrypted(zipped(b"a,y\n1,u\n")), {}, None, "cannot be read"),
        ("d.jsonl", "[" * 100_000, {}, 1, "is not a JSON object"),
        ("d.csv", "a;y\nü;u\n".encode("cp1252"), {"delimiter": ";"}, 2, "not utf-8"),
        ("d.csv.zst", compress_zstd(b"a,y\n1,u\n" * 999)[:-9], {}, None, "cannot be read"),
        ("d.csv", 'a;y\n1;"2\n3;4\n', {"delimiter": ";"}, 2, "never closed"),
        ("d.csv", "a,y\n1,u\n", {"encoding": "utf-16"}, None, "the text is not utf-16"),
        ("d.csv.gz", gzip.compress(b""), {}, None, "the file is empty"),
        ("d.csv", "a\n\n", {"skip_rows": 1}, None, "no rows below skip_rows"),
        ("d.jsonl", "\n\n", {}, None, "the file is empty"),
        ("d.jsonl", SPARSE, {}, None, "too many different keys"),
    ],
    ids=[
        "long",
        "short",
        "title",
        "notation",
        "json",
        "array",
        "nested",
        "nested beside numbers",
        "boolean",
        "nan",
        "twice",
        "archive",
        "packed workbook",
        "cut",
        "bits",
        "header",
        "password",
        "deep",
        "encoding",
        "zstd",
        "quote",
        "not utf-16",
        "empty",
        "empty below the title",
        "empty json",
        "sparse json",
    ],
)
def test_what_is_wrong_is_found_in_its_line(
    tmp_path: Path, name: str, content: str | bytes, keys: dict[str, Any], line: int | None, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, name, content.encode() if isinstance(content, str) else content, **keys)
    issue = caught.value.issues[0]
    assert (issue.file, issue.line) == (name, line)
    assert message in issue.message


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("zst", compress_zstd)])
def test_a_bomb_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(compression, "SMALLEST", 1_000)
    with pytest.raises(DataError, match="unpacks to more than"):
        read(tmp_path, f"d.csv.{ending}", pack(b"a,y\n" + b"0" * 20_000_000))
    assert sum(file.stat().st_size for file in (tmp_path / "out").iterdir()) < 6_000_000
