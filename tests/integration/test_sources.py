"""``[data.source]`` of a real PostgreSQL server and of another object store than the platform's."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from types import SimpleNamespace

import polars as pl
import psycopg
import pytest

from dmls_core.airflow.sources import connections
from dmls_core.airflow.sources.data_source import SourceReader
from dmls_core.devstack.postgres import STUDY
from dmls_core.errors import DataError, PlatformError
from dmls_core.models import load_spec
from dmls_core.store import open_store
from tests.services.postgres_server import PostgresServer
from tests.services.seaweed import S3Server

SPEC = """
model = "random-forest-classifier"
[columns]
target = "paid"
{columns}
[data]
{reading}
[data.source]
connection = "{connection}"
{source}
"""
WEEK = (datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 12, tzinfo=UTC))


def read(source: str, connection: str, columns: str = "", more: str = "", reading: str = "") -> SourceReader:
    text = SPEC.format(source=source, connection=connection, columns=columns, reading=reading) + more
    return SourceReader("lab", load_spec(text.encode()))


@pytest.fixture
def allowed(monkeypatch):
    names = {name: ["lab"] for name in ("sales", "closed", "lake", "locked", "nowhere")}
    monkeypatch.setattr(connections, "airflow_settings", lambda: SimpleNamespace(connections=names))


@pytest.fixture
def sales(postgres: PostgresServer, allowed, monkeypatch):
    context = postgres.context
    with psycopg.connect(postgres.study_url.replace("+psycopg", ""), autocommit=True) as database:
        database.execute(
            "CREATE TABLE orders AS SELECT i AS id, '2026-01-01 00:00Z'::timestamptz + i * interval '1 hour' "
            "AS placed, (i / 4.0)::numeric AS size, CASE WHEN i % 3 > 0 THEN 'c' || i % 3 END AS colour, "
            "gen_random_uuid() AS code, i % 2 = 0 AS paid FROM generate_series(0, 19999) AS i"
        )
        database.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
    about = {"conn_type": "postgres", "host": "127.0.0.1", "port": context.port("postgres")}
    about |= {"login": STUDY, "password": context.secret(f"{STUDY}_db_password"), "schema": STUDY}
    monkeypatch.setenv("AIRFLOW_CONN_SALES", json.dumps(about))
    monkeypatch.setenv("AIRFLOW_CONN_CLOSED", json.dumps(about | {"password": "hidden-word"}))
    yield postgres
    postgres.empty()


def test_a_table_of_postgresql_is_the_same_snapshot_until_its_rows_change(sales, tmp_path):
    store, reader = open_store(str(tmp_path)), read('table = "orders"', "sales", 'drop = ["code", "placed"]')
    assert reader.check().issues == ()
    first = reader.snapshot(store, "orders", WEEK)
    found = pl.read_parquet(store.get(first.data.key))
    assert found.height == 20_000
    assert found.schema["size"] == pl.Float64
    assert found.schema["paid"] == pl.Boolean
    assert found.schema["code"] == pl.String
    assert found["colour"].null_count() == 6_667

    # The rows are written again in another order.
    with psycopg.connect(sales.study_url.replace("+psycopg", ""), autocommit=True) as database:
        database.execute("UPDATE orders SET size = size WHERE id % 5 = 0")
        assert reader.snapshot(store, "orders", WEEK) == first
        database.execute("UPDATE orders SET size = 0 WHERE id = 7")
    assert reader.snapshot(store, "orders", WEEK).sha256 != first.sha256


def test_a_query_has_its_interval_bound_and_cannot_write(sales, tmp_path, monkeypatch):
    store = open_store(str(tmp_path))
    query = (
        "SELECT size, colour, paid FROM orders WHERE placed >= :start AND placed < :end AND colour LIKE 'c%'"
    )
    cron = '[schedule]\ncron = "@weekly"\n'
    found = read(f'query = "{query}"', "sales", more=cron).snapshot(store, "orders", WEEK)
    hours = range(4 * 24, 11 * 24)
    assert pl.read_parquet(store.get(found.data.key)).height == sum(hour % 3 > 0 for hour in hours)

    for writes, message in (
        ("SELECT lo_create(0) AS size, true AS paid", "lo_create.. in a read-only transaction"),
        ("WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone", "data-modifying statements"),
    ):
        with pytest.raises(DataError, match=rf"data\.source\.query: the query failed .*{message}"):
            read(f'query = "{writes}"', "sales").snapshot(store, "orders", WEEK)
    unset = "SELECT set_config('transaction_read_only', 'off', false), true AS paid"
    with pytest.raises(DataError, match="the query failed .*read-write mode must be set before any query"):
        read(f'query = "{unset}"', "sales").snapshot(store, "orders", WEEK)
    assert sales.rows("SELECT count(*) FROM orders") == [(20_000,)]

    monkeypatch.setenv("DMLS_INTAKE_SOURCE_SECONDS", "1")
    with pytest.raises(DataError, match=r"data\.source: the database took too long \(expected at most 1 s"):
        read('query = "SELECT pg_sleep(60) AS a, true AS paid"', "sales").snapshot(store, "orders", WEEK)
    monkeypatch.delenv("DMLS_INTAKE_SOURCE_SECONDS")
    monkeypatch.setenv("DMLS_DATA_ROWS", "6000")
    with pytest.raises(DataError, match="too many rows .found more than 6,000"):
        read('table = "orders"', "sales").snapshot(store, "orders", WEEK)


def test_a_connection_that_does_not_work_is_one_message_without_its_secret(sales, tmp_path):
    reader = read('table = "orders"', "closed")
    with pytest.raises(
        PlatformError, match="the Airflow connection closed: .*authentication failed"
    ) as error:
        reader.snapshot(open_store(str(tmp_path)), "orders", WEEK)
    (issue,) = reader.check().issues
    assert issue.key == "data.source.connection"
    assert "ask the platform team" in issue.hint
    assert "hidden-word" not in f"{error.value}{issue}"


CSV = "size;colour;paid\n1,5;red;yes\n2,5;;no\n"


@pytest.fixture
def lake(s3_server: S3Server, allowed, monkeypatch):
    """A bucket of another endpoint than the platform's store, which is a folder."""
    bucket = s3_server.bucket()
    about = {"conn_type": "aws", "login": s3_server.access_key, "password": s3_server.secret_key}
    extra = {"endpoint_url": s3_server.endpoint_url, "region_name": "us-east-1"}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(about | {"extra": extra}))
    wrong = {"password": "hidden-word", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOCKED", json.dumps(about | wrong))
    client = s3_server.client()

    def put(name: str, content: object) -> None:
        if isinstance(content, pl.DataFrame):
            buffer = io.BytesIO()
            content.write_parquet(buffer)
            content = buffer.getvalue()
        client.put_object(Bucket=bucket, Key=name, Body=content)

    return SimpleNamespace(bucket=bucket, put=put, client=client)


def frame(start: int) -> pl.DataFrame:
    values = range(start, start + 40)
    return pl.DataFrame({"size": list(values), "paid": [["yes", "no"][value % 2] for value in values]})


def test_hive_partitions_of_another_object_store_are_columns(lake, tmp_path):
    store = open_store(str(tmp_path))
    for day in range(1, 15):
        lake.put(f"orders/dt=2026-01-{day:02d}/shop={day % 2 + 1}/part-0.parquet", frame(day))
    lake.put("orders/_SUCCESS", b"")
    whole = read(f'path = "s3://{lake.bucket}/orders/"', "lake", 'drop = ["dt"]')
    assert whole.check().issues == ()
    found = pl.read_parquet(store.get(whole.snapshot(store, "orders", WEEK).data.key))
    assert found.columns == ["size", "paid", "dt", "shop"]
    assert (found.height, found["shop"].unique().sort().to_list()) == (14 * 40, [1, 2])

    days = read(f'path = "s3://{lake.bucket}/orders/dt={{date}}/*/*.parquet"', "lake", 'drop = ["dt"]')
    assert len(days.partitions()) == 14
    assert days.partitions()[4].start == WEEK[0]


def test_unchanged_files_are_neither_downloaded_nor_converted_again(lake, tmp_path, monkeypatch):
    store = open_store(str(tmp_path))
    for name in ("a.csv", "b.csv"):
        lake.put(f"text/{name}", CSV.encode())
    german = 'delimiter = ";"\ndecimal = ","'
    reader = read(f'path = "s3://{lake.bucket}/text/*.csv"', "lake", reading=german)
    first = reader.snapshot(store, "orders", WEEK)
    found = pl.read_parquet(store.get(first.data.key))
    assert found.to_dict(as_series=False) == {
        "size": [1.5, 2.5, 1.5, 2.5],
        "colour": ["red", None, "red", None],
        "paid": ["yes", "no", "yes", "no"],
    }
    with monkeypatch.context() as patch:
        patch.setattr(SourceReader, "_join", None)
        assert reader.snapshot(store, "orders", WEEK) == first
    lake.put("text/b.csv", f"{CSV}3,5;red;no\n".encode())
    changed = reader.snapshot(store, "orders", WEEK)
    assert pl.read_parquet(store.get(changed.data.key)).height == 5


def test_what_is_wrong_with_files_is_one_message_that_names_them(lake, tmp_path):
    store = open_store(str(tmp_path))
    lake.put("shards/a.parquet", frame(0))
    lake.put("shards/b.parquet", frame(0).rename({"size": "width"}))
    shards = read(f'path = "s3://{lake.bucket}/shards/"', "lake")
    with pytest.raises(
        DataError, match=r"s3://.*/shards/b.parquet: its columns differ from those of the first"
    ) as error:
        shards.snapshot(store, "orders", WEEK)
    assert "it lacks 'size' and has also 'width'" in str(error.value)
    lake.put("shards/b.parquet", b"PAR1 truncated")
    with pytest.raises(DataError, match=r"/shards/b.parquet: the file cannot be read as Parquet"):
        shards.snapshot(store, "orders", WEEK)

    (gone,) = read(f'path = "s3://{lake.bucket}/none/"', "lake").check().issues
    assert "there are no files" in str(gone)
    (locked,) = read(f'path = "s3://{lake.bucket}/shards/"', "locked").check().issues
    assert "the Airflow connection locked: " in str(locked)
    assert "hidden-word" not in str(locked)
    (missing,) = read(f'path = "s3://{lake.bucket}/shards/"', "nowhere").check().issues
    assert "the Airflow connection nowhere: " in str(missing)
    one = read(f'path = "s3://{lake.bucket}/shards/a.parquet"', "lake", 'features = ["colour"]')
    (column,) = one.check().issues
    assert "column 'colour' is not in the data (found size, paid" in str(column)
