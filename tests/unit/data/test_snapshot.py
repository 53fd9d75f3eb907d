"""Rows of databases and files of object stores as one Parquet file."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from dmls_core import extensions
from dmls_core.data.formats import Format, names
from dmls_core.data.snapshot import SnapshotWriter, write_snapshot
from dmls_core.errors import DataError
from dmls_core.store import open_store
from dmls_core.store.source_snapshots import KEEP, delete_old_snapshots

CODE = uuid.UUID(int=1)
NIGHT, NOON = (datetime.fromisoformat(f"2026-01-0{text}") for text in ("5", "6T12:00"))


def written(folder: Path, *batches: list[tuple[object, ...]], names: str = "abcdef") -> pl.DataFrame:
    parts = folder / "parts"
    parts.mkdir()
    writer = SnapshotWriter(parts, most=100)
    for batch in ([], *batches):
        writer.add(list(names), batch)
    writer.finish(folder / "rows.parquet")
    return pl.read_parquet(folder / "rows.parquet")


def test_a_column_has_the_type_that_holds_all_batches(tmp_path: Path) -> None:
    first = (1, None, Decimal("1.5"), date(2026, 1, 5), CODE, True)
    second = (2.5, "x", None, NOON, None, None)
    found = written(tmp_path, [first], [second])
    assert found.dtypes == [pl.Float64, pl.String, pl.Float64, pl.Datetime("us"), pl.String, pl.Boolean]
    assert found.row(0) == (1.0, None, 1.5, NIGHT, str(CODE), True)
    assert found.row(1) == (2.5, "x", None, NOON, None, None)


def test_values_of_several_types_become_text_and_numbers_stay_numbers(tmp_path: Path) -> None:
    found = written(tmp_path, [(1, 1), ("x", 2.5), (None, None)], [(3, 4)], names="ab")
    assert found.to_dict(as_series=False) == {"a": ["1", "x", None, "3"], "b": [1.0, 2.5, None, 4.0]}


def test_the_limit_of_rows_holds_over_all_batches(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too many rows .found more than 100; expected at most 100; .*WHERE"):
        written(tmp_path, [(1,)] * 60, [(1,)] * 60, names="a")


def joined(
    folder: Path, *files: Path, values: dict[str, str] | None = None, **options: object
) -> pl.DataFrame:
    target = folder / "joined.parquet"
    names = [file.name for file in files]
    write_snapshot(
        [str(file) for file in files], [values or {}] * len(files), options, [], str(target), names
    )
    return pl.read_parquet(target)


def test_texts_have_types_by_all_of_their_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "n,x,t,id,zip\n1,1.5,red,90071992547409931,02138\nNA,2,,90071992547409932,\n"
    )
    (tmp_path / "b.jsonl").write_text('{"n": 3, "x": 1, "t": "7", "id": 3, "zip": "2138"}\n')
    found = joined(
        tmp_path, tmp_path / "a.csv", tmp_path / "b.jsonl", values={"shop": "7", "dt": "2026-01-05"}
    )
    assert found.dtypes == [pl.Int64, pl.Float64, pl.String, pl.Int64, pl.String, pl.Int32, pl.String]
    assert found["zip"].to_list() == ["02138", None, "2138"]
    assert found["id"].to_list() == [90071992547409931, 90071992547409932, 3]
    assert found["t"].to_list() == ["red", None, "7"]
    assert found["n"].to_list() == [1, None, 3]
    assert found["dt"].to_list() == ["2026-01-05"] * 3


class PairsFormat(Format):
    """A plug-in's text of pairs, converted to Parquet, or to CSV if it says so."""

    name, title, suffixes = "pairs", "a list of pairs", (".pairs",)

    def detect(self, _head):
        return None

    def convert(self, path, _data, target):
        first, *lines = path.read_text().splitlines()
        frame = pl.DataFrame(
            [tuple(line.split("=")) for line in lines], schema=["key", "value"], orient="row"
        )
        frame = frame.with_columns(pl.col("value").cast(pl.Float64))
        frame.write_csv(target) if first == "csv" else frame.write_parquet(target)


@pytest.fixture
def pairs_format(monkeypatch: pytest.MonkeyPatch):
    def clear() -> None:
        for cached in (names.formats, names.load_format, names._by_suffix):
            cached.cache_clear()

    load, listed = extensions.load, extensions.names
    monkeypatch.setattr(
        extensions, "load", lambda group, name: PairsFormat if name == "pairs" else load(group, name)
    )
    monkeypatch.setattr(extensions, "names", lambda group: (*listed(group), "pairs"))
    clear()
    yield
    clear()


@pytest.mark.usefixtures("pairs_format")
@pytest.mark.parametrize("converted_to", ["csv", "parquet"])
def test_formats_of_plug_ins_may_convert_to_csv_or_parquet(tmp_path: Path, converted_to: str) -> None:
    (tmp_path / "a.pairs").write_text(f"{converted_to}\nred=1\nblue=2.5\n")
    (tmp_path / "b.csv").write_text("key,value\ngreen,3\n")
    joined_rows = joined(tmp_path, tmp_path / "a.pairs", tmp_path / "b.csv")
    assert joined_rows.to_dict(as_series=False) == {"key": ["red", "blue", "green"], "value": [1.0, 2.5, 3.0]}


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pl.DataFrame({"x": range(50_000), "y": ["a", "b"] * 25_000}).write_parquet(
            tmp_path / f"{name}.parquet"
        )
    first = tmp_path / "1"
    second = tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
        joined(folder, tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert (first / "joined.parquet").read_bytes() == (second / "joined.parquet").read_bytes()


def test_snapshots_are_deleted_long_after_their_last_use(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.put("sources/lab/orders/a.parquet", b"x")
    now = datetime.now(UTC)
    assert delete_old_snapshots(store, now + KEEP - timedelta(days=1)) == 0
    assert delete_old_snapshots(store, now + KEEP + timedelta(days=1)) == 1
