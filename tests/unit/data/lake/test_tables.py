"""Local Delta Lake and Iceberg tables: versions, intervals, and what breaks them."""

from __future__ import annotations

import json
import os
import struct
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType
from pyroaring import BitMap

from dmls_core.data.lake.iceberg import open_iceberg
from dmls_core.data.lake.table_version import BATCH_ROWS
from dmls_core.data.lake.tables import copy_table, find_version
from dmls_core.errors import DataError, PlatformError

FIRST = date(2026, 1, 5)
TUESDAY = ["2026-01-06T00:00:00+00:00", "2026-01-07T00:00:00+00:00"]


def day(number: int) -> pa.Table:
    """Return four rows of the day ``number``."""
    start = datetime(2026, 1, 5, tzinfo=UTC) + timedelta(days=number)
    moments = [start + timedelta(hours=6 * at) for at in range(4)]
    return pa.table(
        {
            "x": [4 * number + at for at in range(4)],
            "shop": ["a b", "c/d"] * 2,
            "zoned": moments,
            "plain": pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")),
            "day": [FIRST + timedelta(days=number)] * 4,
        }
    )


@pytest.fixture
def delta(tmp_path: Path) -> str:
    """Three versions of a table with partitions; each adds a day."""
    folder = str(tmp_path / "delta")
    for number in range(3):
        write_deltalake(folder, day(number), mode="append", partition_by=["shop"])
    return folder


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """A catalog with a table of three snapshots; each adds a day."""
    (tmp_path / "warehouse").mkdir()
    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/warehouse"}
    made = SqlCatalog("prod", **properties)
    made.create_namespace("sales")
    table = made.create_table("sales.orders", day(0).schema)
    for number in range(3):
        table.append(day(number))
    return {"name": "prod", **properties}


def copied(
    tmp_path: Path, kind: str, name: str, options: dict[str, str], version: int, **more
) -> pl.DataFrame:
    target = str(tmp_path / "rows.parquet")
    times = more.get("times")
    rows = copy_table(kind, name, options, version, more.get("used", []), times, target)
    found = pl.read_parquet(target)
    assert found.height == rows
    return found


def times(column: str, timezone: str = "UTC") -> dict[str, object]:
    return {"column": column, "between": TUESDAY, "timezone": timezone}


def test_a_delta_table_is_read_at_a_version_with_its_partition_columns(tmp_path, delta):
    assert find_version("delta", delta, {}, None, None)["version"] == 2
    found = copied(tmp_path, "delta", delta, {}, 1)
    assert found.columns == ["x", "shop", "zoned", "plain", "day"]
    assert found.sort("x")["shop"].to_list() == ["a b", "c/d"] * 4
    first = (tmp_path / "rows.parquet").read_bytes()
    DeltaTable(delta).optimize.compact()
    copied(tmp_path, "delta", delta, {}, 1)
    assert (tmp_path / "rows.parquet").read_bytes() == first


@pytest.mark.parametrize("column", ["zoned", "plain", "day"])
def test_an_interval_reads_its_rows_and_none_of_the_other_files(tmp_path, delta, column):
    kept = {Path(uri).name for uri in DeltaTable(delta, version=1).file_uris()}
    kept -= {Path(uri).name for uri in DeltaTable(delta, version=0).file_uris()}
    for path in Path(delta).rglob("*.parquet"):
        if path.name not in kept:
            path.write_bytes(b"broken")
    found = copied(tmp_path, "delta", delta, {}, 2, times=times(column), used=["x"])
    assert sorted(found["x"]) == [4, 5, 6, 7]
    assert found.columns == ["x"]


def test_times_without_a_zone_are_in_that_of_the_schedule_and_the_range_is_never_too_small(tmp_path, delta):
    found = copied(tmp_path, "delta", delta, {}, 2, times=times("plain", "America/New_York"), used=["x"])
    # From 19:00 on the 5th to 19:00 on the 6th, and two hours more on both sides.
    assert sorted(found["x"]) == [3, 4, 5, 6, 7]


def test_of_several_broken_files_the_message_names_one_that_is_needed(tmp_path, delta):
    needed = {Path(uri).name for uri in DeltaTable(delta, version=1).file_uris()}
    needed -= {Path(uri).name for uri in DeltaTable(delta, version=0).file_uris()}
    for path in Path(delta).rglob("*.parquet"):
        path.write_bytes(b"broken")
    with pytest.raises(DataError) as error:
        copied(tmp_path, "delta", delta, {}, 2, times=times("zoned"))
    (issue,) = error.value.issues
    assert "a file of the table cannot be read" in issue.message
    assert Path(issue.found.partition(": ")[0]).name in needed


def _z85(content: bytes) -> str:
    """Encode bytes as ZeroMQ does, whose alphabet Delta uses."""
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(content) // 4}I", content)
    return "".join(alphabet[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))


def test_deleted_rows_are_left_out(tmp_path, delta):
    path = tmp_path / "plain"
    write_deltalake(path, day(0).drop_columns(["plain"]))
    log = path / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (add,) = [action["add"] for action in actions if "add" in action]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7} | features
    # The format of Delta's protocol: a magic number, then one bitmap with the key 0.
    content = struct.pack("<iqi", 1681511377, 1, 0) + BitMap([1, 2]).serialize()
    inline = _z85(content + b"\0" * (-len(content) % 4))
    vector = {"storageType": "i", "pathOrInlineDv": inline, "sizeInBytes": len(content), "cardinality": 2}
    changed = {
        "remove": {key: add[key] for key in ("path", "size")} | {"deletionTimestamp": 0, "dataChange": True}
    }
    lines = [{"protocol": protocol}, changed, {"add": add | {"deletionVector": vector}}]
    (log.parent / "00000000000000000001.json").write_text("\n".join(map(json.dumps, lines)))
    assert copied(tmp_path, "delta", str(path), {}, 1)["x"].to_list() == [0, 3]


def test_an_iceberg_table_is_read_at_a_snapshot_of_its_catalog_or_metadata(tmp_path, catalog):
    table = SqlCatalog(**catalog).load_table("sales.orders")
    first, second, third = (entry.snapshot_id for entry in table.history())
    assert find_version("iceberg", "sales.orders", catalog, None, None)["version"] == third
    as_of = datetime.fromtimestamp(table.history()[2].timestamp_ms / 1000, UTC).isoformat()
    assert find_version("iceberg", "sales.orders", catalog, None, as_of)["version"] == second
    assert copied(tmp_path, "iceberg", table.metadata_location, {}, first)["x"].to_list() == [0, 1, 2, 3]
    for column in ("zoned", "plain", "day"):
        found = copied(tmp_path, "iceberg", "sales.orders", catalog, third, times=times(column), used=["x"])
        assert sorted(found["x"]) == [4, 5, 6, 7]


def test_an_iceberg_table_without_a_broken_or_deleted_file_is_read(tmp_path, catalog):
    table = SqlCatalog(**catalog).load_table("sales.orders")
    first, *_, third = (entry.snapshot_id for entry in table.history())
    (needed,) = [task.file.file_path for task in table.scan(snapshot_id=first).plan_files()]
    Path(needed.removeprefix("file://")).write_bytes(b"broken")
    with pytest.raises(DataError, match=f"cannot be read with the columns of this version .found {needed}: "):
        copied(tmp_path, "iceberg", "sales.orders", catalog, third)
    assert copied(tmp_path, "iceberg", "sales.orders", catalog, third, times=times("day")).height == 4
    Path(needed.removeprefix("file://")).unlink()
    with pytest.raises(DataError, match=f"a file of the table is gone .found {needed};"):
        copied(tmp_path, "iceberg", "sales.orders", catalog, first)


def test_a_large_iceberg_file_is_read_by_parts_as_pyiceberg_reads_it(tmp_path, catalog):
    """By parts, with columns renamed, added and widened, and rows that a delete file names."""
    made = SqlCatalog(**catalog)
    rows = 500_000
    numbers = pa.array(range(rows), pa.int32())
    table = made.create_table(
        "sales.large",
        pa.schema({"n": pa.int32(), "x": pa.int64(), "z": pa.int64()}),
        properties={"write.parquet.row-group-limit": "20000"},
    )
    table.append(pa.table({"n": numbers, "x": numbers.cast(pa.int64()), "z": numbers.cast(pa.int64())}))
    with table.update_schema() as change:
        change.rename_column("x", "y").add_column("later", StringType()).update_column("n", LongType())
    table.append(pa.table({"n": [1], "y": [2], "z": [3], "later": ["new"]}))
    snapshot = open_iceberg("sales.large", catalog, None, None)
    task = max(snapshot.table.scan().plan_files(), key=lambda found: found.file.record_count)
    gone = [0, 32_767, 32_768, 499_999, *range(65_536, 98_304)]
    pq.write_table(
        pa.table({"file_path": [task.file.file_path] * len(gone), "pos": gone}), tmp_path / "deletes.parquet"
    )
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{tmp_path}/deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
    )
    task = FileScanTask(task.file, {deletes})
    names = ["later", "y", "n"]
    batches = snapshot._read(task, names, AlwaysTrue())
    before = pa.total_allocated_bytes()
    parts = [next(batches)]
    assert pa.total_allocated_bytes() - before < rows * 8  # half of the two columns
    parts += batches
    own = ArrowScan(table.metadata, table.io, table.schema().select(*names), AlwaysTrue()).to_table([task])
    found = pa.Table.from_batches(parts)
    assert max(part.num_rows for part in parts) <= BATCH_ROWS
    assert found.num_rows == rows - len(gone)
    assert found.select(names).equals(own.select(names).cast(found.schema))


@pytest.mark.parametrize(
    ("version", "as_of", "message"),
    [
        (9, None, "the table has no version 9 .found version 2 is the newest"),
        (
            None,
            "2026-01-01T00:00:00+00:00",
            "no version from before 2026-01-01 00:00 UTC .found version 0 of",
        ),
    ],
)
def test_a_version_that_a_delta_table_does_not_have(delta, version, as_of, message):
    with pytest.raises(DataError, match=message):
        find_version("delta", delta, {}, version, as_of)


def test_a_column_that_came_later_is_missing_in_earlier_versions_and_null_in_earlier_files(tmp_path, delta):
    wider = day(3).append_column("colour", pa.array(["red"] * 4))
    write_deltalake(delta, wider, mode="append", schema_mode="merge")
    with pytest.raises(DataError, match="the table has no column 'colour' at this version .found x, shop"):
        copied(tmp_path, "delta", delta, {}, 2, used=["colour"])
    assert copied(tmp_path, "delta", delta, {}, 3)["colour"].null_count() == 12


def test_metadata_at_an_address_cannot_choose_the_code_that_reads_its_files(tmp_path, catalog):
    table = SqlCatalog(**catalog).load_table("sales.orders")
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    metadata["properties"]["py-io-impl"] = "none.such.Files"
    path.write_text(json.dumps(metadata))
    found = copied(tmp_path, "iceberg", table.metadata_location, {}, table.metadata.current_snapshot_id)
    assert found.height == 12


@pytest.mark.parametrize(
    "place", ["/etc/data.parquet", "file:///etc/data.parquet", "gs://other/data.parquet"]
)
def test_metadata_cannot_name_files_of_the_worker_or_of_another_store(place):
    from types import SimpleNamespace

    from dmls_core.data.lake.iceberg import _check_stores

    table = SimpleNamespace(metadata_location="s3://lake/orders/metadata/v1.metadata.json")
    _check_stores(table, ["s3://lake/a.parquet", "s3a://lake/b.parquet"])
    with pytest.raises(DataError, match=f"not in the object store of its metadata .found {place}"):
        _check_stores(table, ["s3://lake/a.parquet", place])


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(PlatformError, match=r"a package for delta tables is missing: install 'dmls\[lake\]'"):
        find_version("delta", "s3://lake/orders", {}, None, None)


def test_reading_tables_does_not_bind_the_process_to_some_cpus(tmp_path, delta, catalog):
    before = os.sched_getaffinity(0)
    copied(tmp_path, "delta", delta, {}, 2)
    version = find_version("iceberg", "sales.orders", catalog, None, None)["version"]
    copied(tmp_path, "iceberg", "sales.orders", catalog, version)
    assert os.sched_getaffinity(0) == before
