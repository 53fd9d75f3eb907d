"""Delta Lake and Iceberg tables on a real S3 server, through Airflow connections."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pytest

from dmls_core.airflow.sources import connections
from dmls_core.airflow.sources.data_source import SourceReader
from dmls_core.errors import DataError, PlatformError
from dmls_core.models import load_spec
from dmls_core.store import open_store
from tests.services.seaweed import S3Server

SPEC = """
model = "random-forest-classifier"
[columns]
target = "paid"
[data.source]
connection = "{connection}"
{source}
"""
WEEK = (datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 12, tzinfo=UTC))


def reader(source: str, connection: str = "lake") -> SourceReader:
    return SourceReader("lab", load_spec(SPEC.format(source=source, connection=connection).encode()))


def rows(start: int, count: int = 40) -> pa.Table:
    values = range(start, start + count)
    return pa.table({"size": list(values), "paid": [["yes", "no"][value % 2] for value in values]})


@pytest.fixture
def lake(s3_server: S3Server, monkeypatch):
    """A bucket, and connections to it: of AWS, with a wrong password, and of a catalog in SQLite."""
    names = {name: ["lab"] for name in ("lake", "locked", "catalog", "rest", "locked_rest", "no_rest")}
    monkeypatch.setattr(connections, "airflow_settings", lambda: SimpleNamespace(connections=names))
    extra = {"endpoint_url": s3_server.endpoint_url, "region_name": "us-east-1"}
    about = {"conn_type": "aws", "login": s3_server.access_key, "password": s3_server.secret_key}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(about | {"extra": extra}))
    wrong = about | {"password": "hidden-word", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOCKED", json.dumps(wrong))
    return SimpleNamespace(bucket=s3_server.bucket(), server=s3_server, client=s3_server.client())


@pytest.fixture
def delta(lake):
    """A table of two versions, and what appends a further one."""
    from deltalake import write_deltalake

    options = {
        "AWS_ACCESS_KEY_ID": lake.server.access_key,
        "AWS_SECRET_ACCESS_KEY": lake.server.secret_key,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": lake.server.endpoint_url,
        "AWS_ALLOW_HTTP": "true",
    }

    def append(start: int) -> None:
        write_deltalake(f"s3://{lake.bucket}/orders", rows(start), mode="append", storage_options=options)

    append(0)
    append(100)
    return append


@pytest.fixture
def iceberg(lake, tmp_path, monkeypatch):
    """A table with two snapshots in a catalog."""
    from pyiceberg.catalog.sql import SqlCatalog

    properties = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{lake.bucket}/warehouse",
        "s3.endpoint": lake.server.endpoint_url,
        "s3.access-key-id": lake.server.access_key,
        "s3.secret-access-key": lake.server.secret_key,
        "s3.region": "us-east-1",
    }
    monkeypatch.setenv("AIRFLOW_CONN_CATALOG", json.dumps({"conn_type": "generic", "extra": properties}))
    catalog = SqlCatalog("catalog", **properties)
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", rows(0).schema)
    table.append(rows(0))
    table.append(rows(100))
    return table


@pytest.fixture
def rest_catalog(lake, monkeypatch):
    """A table in SeaweedFS's Iceberg REST catalog, which wants a login, and connections to the catalog."""
    import boto3
    from pyiceberg.catalog.rest import RestCatalog

    server, warehouse = lake.server, f"tables-{uuid.uuid4().hex[:12]}"
    credentials = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    session = boto3.session.Session(**credentials, region_name="us-east-1")
    session.client("s3tables", endpoint_url=server.endpoint_url).create_table_bucket(name=warehouse)
    login = f"{server.access_key}:{server.secret_key}"
    properties = {
        "uri": server.catalog_url,
        "oauth2-server-uri": f"{server.catalog_url}/v1/oauth/tokens",
        "warehouse": f"s3://{warehouse}",
        "s3.endpoint": server.endpoint_url,
        "s3.access-key-id": server.access_key,
        "s3.secret-access-key": server.secret_key,
        "s3.region": "us-east-1",
    }
    changes = {
        "rest": {"credential": login},
        "locked_rest": {"credential": f"{server.access_key}:hidden-word"},
        "no_rest": {"credential": login, "uri": "http://127.0.0.1:1"},
    }
    for name, change in changes.items():
        extra = json.dumps({"conn_type": "generic", "extra": properties | change})
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", extra)
    catalog = RestCatalog("rest", **properties | {"credential": login})
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", rows(0).schema)
    table.append(rows(0))
    return table


def sizes(store, snapshot) -> set[int]:
    return set(pl.read_parquet(store.get(snapshot.data.key))["size"])


def broken(lake, prefix: str, content: bytes | None) -> str:
    """Damage or delete the first of the data files, and return its key."""
    listed = lake.client.list_objects_v2(Bucket=lake.bucket, Prefix=prefix)["Contents"]
    key = min(found["Key"] for found in listed if found["Key"].endswith(".parquet"))
    if content is None:
        lake.client.delete_object(Bucket=lake.bucket, Key=key)
    else:
        lake.client.put_object(Bucket=lake.bucket, Key=key, Body=content)
    return key


def test_a_delta_table_is_read_at_the_newest_version_or_the_one_of_the_spec(lake, delta, tmp_path):
    store, newest = open_store(str(tmp_path)), reader(f'delta = "s3://{lake.bucket}/orders"')
    assert newest.check().issues == ()
    first = newest.snapshot(store, "orders", WEEK)
    assert (first.version, sizes(store, first)) == (1, {*range(40), *range(100, 140)})
    pinned = reader(f'delta = "s3://{lake.bucket}/orders"\nversion = 0')
    old = pinned.snapshot(store, "orders", WEEK)
    delta(200)
    assert newest.snapshot(store, "orders", WEEK).version == 2
    assert pinned.snapshot(store, "orders", WEEK) == old
    assert (old.version, sizes(store, old)) == (0, set(range(40)))


def test_what_is_wrong_with_a_delta_table_names_connection_table_version_and_file(lake, delta, tmp_path):
    store, table = open_store(str(tmp_path)), f"s3://{lake.bucket}/orders"
    with pytest.raises(DataError, match=rf"lake: {table}, version 9: .*no version 9 \(found version 1 is"):
        reader(f'delta = "{table}"\nversion = 9').snapshot(store, "orders", WEEK)
    with pytest.raises(DataError, match=rf"lake: {table}/none: .*there is no such table"):
        reader(f'delta = "{table}/none"').snapshot(store, "orders", WEEK)
    with pytest.raises(PlatformError, match=f"connection locked: {table}") as error:
        reader(f'delta = "{table}"', "locked").snapshot(store, "orders", WEEK)
    assert "hidden-word" not in str(error.value)
    name = broken(lake, "orders/", b"PAR1 truncated").rpartition("/")[2]
    with pytest.raises(DataError, match=rf"lake: {table}, version 1: .*cannot be read .* .found {name}: "):
        reader(f'delta = "{table}"').snapshot(store, "orders", WEEK)
    broken(lake, "orders/", None)
    with pytest.raises(DataError, match=f"a file of the table is gone .found {name};"):
        reader(f'delta = "{table}"').snapshot(store, "orders", WEEK)


def test_an_iceberg_table_of_a_catalog_is_read_at_one_snapshot(lake, iceberg, tmp_path):
    store, newest = open_store(str(tmp_path / "store")), reader('iceberg = "sales.orders"', "catalog")
    assert newest.check().issues == ()
    found = newest.snapshot(store, "orders", WEEK)
    current, metadata = iceberg.metadata.current_snapshot_id, iceberg.metadata_location
    assert (found.version, sizes(store, found)) == (current, {*range(40), *range(100, 140)})
    iceberg.append(rows(200))
    pinned = reader(f'iceberg = "sales.orders"\nsnapshot = {current}', "catalog")
    assert pinned.snapshot(store, "orders", WEEK) == found
    static = reader(f'iceberg = "{metadata}"')
    assert static.snapshot(store, "orders", WEEK) == found


def test_an_iceberg_table_of_a_rest_catalog_is_read_at_one_snapshot(lake, rest_catalog, tmp_path):
    store, newest = open_store(str(tmp_path / "store")), reader('iceberg = "sales.orders"', "rest")
    assert newest.check().issues == ()
    first = newest.snapshot(store, "orders", WEEK)
    assert (first.version, sizes(store, first)) == (rest_catalog.metadata.current_snapshot_id, {*range(40)})
    rest_catalog.append(rows(100))
    assert sizes(store, newest.snapshot(store, "orders", WEEK)) == {*range(40), *range(100, 140)}
    pinned = reader(f'iceberg = "sales.orders"\nsnapshot = {first.version}', "rest")
    assert pinned.snapshot(store, "orders", WEEK) == first


def test_what_is_wrong_with_a_rest_catalog_names_the_connection(lake, rest_catalog, tmp_path):
    store = open_store(str(tmp_path / "store"))
    with pytest.raises(DataError, match="rest: sales.none: .*no such table"):
        reader('iceberg = "sales.none"', "rest").snapshot(store, "orders", WEEK)
    reasons = {"locked_rest": "Invalid client", "no_rest": "its catalog http://127.0.0.1:1 does not answer"}
    for name, reason in reasons.items():
        with pytest.raises(PlatformError, match=f"connection {name}: sales.orders: .*{reason}") as error:
            reader('iceberg = "sales.orders"', name).snapshot(store, "orders", WEEK)
        assert "hidden-word" not in str(error.value)
        assert lake.server.secret_key not in str(error.value)


def test_what_is_wrong_with_an_iceberg_table_names_connection_table_snapshot_and_file(
    lake, iceberg, tmp_path
):
    store, newest = open_store(str(tmp_path / "store")), reader('iceberg = "sales.orders"', "catalog")
    with pytest.raises(DataError, match=r"catalog: sales.orders, snapshot 7: .*the table has no snapshot 7"):
        reader('iceberg = "sales.orders"\nsnapshot = 7', "catalog").snapshot(store, "orders", WEEK)
    with pytest.raises(DataError, match="catalog: sales.none: .*no such table"):
        reader('iceberg = "sales.none"', "catalog").snapshot(store, "orders", WEEK)
    with pytest.raises(PlatformError, match="connection locked: ") as error:
        reader(f'iceberg = "{iceberg.metadata_location}"', "locked").snapshot(store, "orders", WEEK)
    assert "hidden-word" not in str(error.value)
    key = broken(lake, "warehouse/sales/orders/data/", b"PAR1 truncated")
    with pytest.raises(DataError, match=rf"catalog: sales.orders, snapshot \d+: .*cannot be read .*{key}"):
        newest.snapshot(store, "orders", WEEK)
    broken(lake, "warehouse/sales/orders/data/", None)
    with pytest.raises(DataError, match=f"a file of the table is gone .*{key}"):
        newest.snapshot(store, "orders", WEEK)
