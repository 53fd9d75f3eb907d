"""Schema inference reads rows from all over a file: the beginning of a sorted one misleads."""

from __future__ import annotations

import gzip
import io
import random
import zipfile
from pathlib import Path

import polars as pl
import pytest

from dmls_core.data.formats.thinning import CHUNK, span, thin_text, whole_beginning
from dmls_core.errors import DataError
from dmls_core.intake.schema_inference import infer_file_schema, infer_schema, read_sample, sample_file


def zipped(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", content)
    return out.getvalue()


PACK = {"a.csv.gz": gzip.compress, "a.zip": zipped}


def sorted_rows(rows: int) -> list[str]:
    return [f"{row},{row * 10},{'first' if row < rows / 2 else 'second'}" for row in range(rows)]


@pytest.mark.parametrize("rows", [9_000, 400_000], ids=["read whole", "large"])
def test_a_sorted_text_is_sampled_all_over(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["row,size,half", *sorted_rows(rows)]) + "\n")

    found = infer_file_schema(path)

    assert (found["spread"], found["seen"]) == (True, 2_000)
    row, size, half = found["columns"]
    assert (row["kind"], half["distinct"]) == ("id", 2)
    assert size["high"] > 9.9 * rows
    assert found["preview"][:2] == (("0", "0", "first"), ("1", "10", "first"))
    assert found["rows"] == (rows if rows < 10_000 else None)


def test_a_sorted_parquet_file_is_sampled_all_over() -> None:
    frame = pl.select(row=pl.int_range(50_000), half=pl.int_range(50_000) // 25_000)
    frame = frame.with_columns(size=pl.col("row") * 10)

    content = io.BytesIO()
    frame.write_parquet(content)
    found = infer_schema("a.parquet", read_sample("a.parquet", content.getvalue(), complete=True))

    assert (found.seen, found.rows) == (2_000, 50_000)
    assert {column.name: column.kind for column in found.columns} == {
        "row": "id",
        "half": "code",
        "size": "number",
    }
    assert found.columns[0].high == pytest.approx(50_000, rel=0.1)


def test_a_piece_that_begins_within_quotes_does_not_spoil_the_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,note,y\n" + '1,"two\nlines, or more",u\n2,"x",v\n' * 120_000)

    assert infer_file_schema(path)["target"] == "y"


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("a,b\n1,2\n3,", "a,b\n1,2\n"),
        ('a,b\n1,"2\n\n3"\n4,"5\n6', 'a,b\n1,"2\n\n3"\n'),
        ('"a\nb', '"a\n'),
        ("a,b", ""),
        ("", ""),
        ('a\n"' + "b\n" * CHUNK, 'a\n"' + "b\n" * CHUNK),  # never closed: its check says so
    ],
)
def test_the_beginning_of_a_text_ends_with_a_record(text: str, beginning: str) -> None:
    assert whole_beginning(text.encode()).decode() == beginning
    for codec in ("utf-16-le", "utf-16-be"):
        assert whole_beginning(text.encode(codec), "\n".encode(codec)).decode(codec) == beginning


@pytest.mark.parametrize("shift", [0, 4, 8])
def test_a_compressed_text_with_line_breaks_in_quotes(tmp_path: Path, shift: int) -> None:
    path, target = tmp_path / "a.csv.gz", tmp_path / "thin"
    path.write_bytes(gzip.compress(b"x" * shift + b"a,b\n" + b'1,"two\n\n"\n' * 40_000, 1))
    thin_text(str(path), "utf-8", str(target), 1 << 17, 60, False)
    assert target.read_bytes().count(b'"') % 2 == 0


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_large_text_in_utf_16(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.csv"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    path.write_bytes((mark + "\n".join(["row,size,half", *sorted_rows(120_000)]) + "\n").encode(encoding))

    found = sample_file(path)

    assert (found.spread, found.data) == (True, {"encoding": "utf-16"})
    assert found.columns[0][0] == "0"
    assert int(found.columns[0][-1]) > 117_000


@pytest.mark.parametrize("name", ["a.csv.gz", "a.zip"])
def test_a_large_compressed_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = "\n".join(["row;größe;half", *sorted_rows(200_000)]).replace(",", ";") + "\n"
    path.write_bytes(PACK[name](text.encode("cp1252")))

    found = infer_file_schema(path)

    assert (found["spread"], found["seen"]) == (True, 2_000)
    assert found["data"] == {"delimiter": ";", "encoding": "windows-1252"}
    assert found["columns"][1]["name"] == "größe"
    assert found["columns"][1]["high"] > 1_900_000
    assert "The sample is from lines 1 to 200,001." in found["notes"]


def test_a_part_of_a_compressed_text(tmp_path: Path) -> None:
    rows = random.Random(1)
    text = "a,y\n" + "".join(f"{rows.random()},{rows.choice('uv')}\n" for _ in range(150_000))
    path, target = tmp_path / "a.csv.gz", tmp_path / "thin"
    path.write_bytes(gzip.compress(text.encode(), 1)[:-100_000])

    found = thin_text(str(path), "utf-8", str(target), 1 << 20, 60, True)
    assert (found["complete"], span(found, 64 << 20, True)) == (False, "the first 64 MiB of the file")
    with pytest.raises(DataError, match="damaged or incomplete"):
        thin_text(str(path), "utf-8", str(target), 1 << 20, 60, False)

    found = thin_text(str(path), "utf-8", str(target), 1 << 20, 0, False)
    assert (found["complete"], found["lines"]) == (False, 0)


def test_places_stay_few_and_know_their_lines(tmp_path: Path) -> None:
    path, target = tmp_path / "a.csv", tmp_path / "thin"
    path.write_text("row\n" + "".join(f"{row:019}\n" for row in range(2, 600_000)))

    found = thin_text(str(path), "utf-8", str(target), 1 << 16, 60, False)

    lines = target.read_text().splitlines()
    assert 16 <= len(found["parts"]) < 32
    assert all(int(lines[at - 1]) == line for at, line in found["parts"])
    assert found["parts"][-1][1] > 540_000


def test_a_large_parquet_file_is_sampled_all_over(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    frame = pl.select(row=pl.int_range(1_500_000), half=pl.int_range(1_500_000) // 750_000)
    frame.with_columns(noise=pl.col("row").hash(1)).write_parquet(path)
    assert path.stat().st_size > 8 << 20

    found = infer_file_schema(path)

    assert (found["spread"], found["rows"]) == (True, 1_500_000)
    assert 1_900 < found["seen"] <= 2_000
    row, half, _ = found["columns"]
    assert (row["high"], half["kind"]) == (1_499_999, "code")
    assert "The sample is from rows 1 to 1,500,000." in found["notes"]
