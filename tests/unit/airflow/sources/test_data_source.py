"""``[data.source]`` of a real SQLite database: what admission checks, and what a run reads."""

from __future__ import annotations

import json
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from dmls_core.airflow.jobs.tasks import base
from dmls_core.airflow.jobs.tasks.register import interval_tags
from dmls_core.airflow.jobs.tasks.validate import ValidateOperator
from dmls_core.airflow.runners.trainer import trainer_arguments
from dmls_core.airflow.runs.job import job_of
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.airflow.sources import connections
from dmls_core.airflow.sources.data_source import SourceReader, check_source
from dmls_core.errors import DataError
from dmls_core.intake import Partition, admit
from dmls_core.intake.column_check import Findings
from dmls_core.models import load_spec
from dmls_core.store import open_store
from tests.unit.airflow.jobs.tasks.test_validate import Task

SPEC = """
model = "random-forest-classifier"
n_trials = 2
[columns]
target = "paid"
features = ["size", "colour"]
{columns}
[data.source]
connection = "warehouse"
{source}
"""
TABLE = 'table = "order lines"'
QUERY = (
    'query = "SELECT size, colour, paid FROM \\"order lines\\" '
    'WHERE day >= date(:start) AND day < date(:end)"'
)
WEEKLY = '[schedule]\ncron = "0 0 * * 1"\n'
INTERVAL = (datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 1, 12, tzinfo=UTC))


def spec(source: str = TABLE, more: str = "", columns: str = ""):
    return load_spec((SPEC.format(source=source, columns=columns) + more).encode())


@pytest.fixture
def warehouse(tmp_path, monkeypatch):
    path = tmp_path / "warehouse.db"
    with sqlite3.connect(path) as database:
        database.execute(
            'CREATE TABLE "order lines" '
            "(id INTEGER PRIMARY KEY, day TEXT, size REAL, colour TEXT, paid INTEGER)"
        )
        rows = [
            (i, f"2026-01-{i % 28 + 1:02d}", None if i % 7 == 0 else i / 4, f"0{i % 3}", i % 2)
            for i in range(12_000)
        ]
        database.executemany('INSERT INTO "order lines" VALUES (?, ?, ?, ?, ?)', rows)
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({"conn_type": "sqlite", "host": str(path)}))
    allowed = {"warehouse": ["lab"], "missing": ["*"]}
    monkeypatch.setattr(connections, "airflow_settings", lambda: SimpleNamespace(connections=allowed))
    return path


@pytest.fixture
def store(root):
    return open_store(str(root))


def rows(store, snapshot) -> pl.DataFrame:
    return pl.read_parquet(store.get(snapshot.data.key))


def test_a_table_becomes_one_parquet_with_the_types_of_its_values(warehouse, store):
    reader = SourceReader("lab", spec())
    first = reader.snapshot(store, "orders", INTERVAL)
    assert first.data.key == f"sources/lab/orders/{first.sha256}.parquet"
    found = rows(store, first)
    assert found.height == 12_000
    assert found["size"].dtype == pl.Float64
    assert found["size"].null_count() == sum(i % 7 == 0 for i in range(12_000))
    assert found["colour"].unique().sort().to_list() == ["00", "01", "02"]

    written = store.head(first.data.key).modified
    assert reader.snapshot(store, "orders", INTERVAL) == first
    assert store.head(first.data.key).modified == written
    with sqlite3.connect(warehouse) as database:
        database.execute('UPDATE "order lines" SET size = 0.5 WHERE id = 11999')
    assert reader.snapshot(store, "orders", INTERVAL).sha256 != first.sha256


def test_an_interval_is_bound_to_the_query(warehouse, store):
    found = rows(store, SourceReader("lab", spec(QUERY, WEEKLY)).snapshot(store, "orders", INTERVAL))
    assert found.columns == ["size", "colour", "paid"]
    assert found.height == sum(5 <= i % 28 + 1 <= 11 for i in range(12_000))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('table = "none"', r"data\.source\.table: the database has no such table \(found none"),
        (
            'query = "SELECT none FROM sqlite_master"',
            r"data\.source\.query: the query failed .*no such column",
        ),
        ('query = "WITH x AS (SELECT 1) DELETE FROM \\"order lines\\""', "the query failed .*not authorized"),
        ('query = "SELECT 1 AS a, 2 AS a"', "two columns of the same name .found a; rename one with AS"),
        ('query = "SELECT 1 AS size WHERE 0"', "warehouse: the query: .*column 'paid' is not in the data"),
        ('query = "SELECT size, paid FROM \\"order lines\\""', "column 'colour' is not in the data"),
        ('query = "SELECT size, colour, paid FROM \\"order lines\\" ORDER BY day"', ""),
    ],
    ids=["table", "column", "writes", "double", "empty", "missing", "right"],
)
def test_what_admission_finds(warehouse, source, message):
    found = check_source("lab", spec(source)).issues
    assert bool(found) == bool(message)
    assert not found or re.search(message, str(found[0]))
    with sqlite3.connect(warehouse) as database:
        assert database.execute('SELECT count(*) FROM "order lines"').fetchone() == (12_000,)


@pytest.fixture
def begin(root, store, bundle, warehouse, monkeypatch):
    """Admit a job, and make the context of one of its runs."""
    settings = AirflowSettings(root=str(root), runner="process")
    monkeypatch.setattr(base, "airflow_settings", lambda: settings)

    def _begin(source: str, more: str = "", interval: Any = (None, None), columns: str = ""):
        text = SPEC.format(source=source, columns=columns) + more
        store.put("incoming/lab/orders/spec.toml", text.encode())
        outcome = admit(store, "lab", "orders", check_connections=check_source)
        assert outcome.state == "accepted", outcome.message
        made = bundle()
        made.initialize()
        (path,) = [p for p in made.path.glob("shard_*.json") if "dmls.lab.orders" in p.read_text()]
        run = SimpleNamespace(
            run_type="backfill" if interval[0] else "manual",
            data_interval_start=interval[0],
            data_interval_end=interval[1],
            run_after=datetime(2026, 3, 1, tzinfo=UTC),
            conf={},
        )
        dag = SimpleNamespace(fileloc=str(path.with_suffix(".py")), dag_id="dmls.lab.orders")
        return {"dag": dag, "dag_run": run, "run_id": "manual__1", "task_instance": Task()}, outcome

    return _begin


def test_a_run_reads_a_snapshot_and_the_same_rows_are_the_same_run(begin, store):
    context, outcome = begin(TABLE)
    assert "on warehouse: order lines." in outcome.message
    assert outcome.record.data == ()
    ValidateOperator(task_id="validate").execute(context)
    job = job_of(context)
    (data,) = job.data
    arguments = trainer_arguments(job, store, {"engine": "cpu", "worker": 0})
    assert arguments[2] == f"{store.url}/{data.key}"
    assert arguments[arguments.index("--etag") + 1] == data.etag
    assert not any("warehouse" in argument for argument in arguments)
    assert json.loads(store.get(job.run_file("run.json")))["data"][0]["key"] == data.key

    ValidateOperator(task_id="validate").execute(context)
    assert job_of(context).run_key == job.run_key


def test_a_backfill_reads_its_interval_only(begin, store):
    context, _ = begin(QUERY, WEEKLY, INTERVAL)
    ValidateOperator(task_id="validate").execute(context)
    job = job_of(context)
    assert job.backfill
    assert job.interval == ("2026-01-05T00:00:00+00:00", "2026-01-12T00:00:00+00:00")
    found = pl.read_parquet(store.get(job.data[0].key))
    assert found.height == sum(5 <= i % 28 + 1 <= 11 for i in range(12_000))


def test_a_missing_partition_of_a_source_is_waited_for_until_the_timeout(begin, store, monkeypatch):
    found: list[Partition] = []
    monkeypatch.setattr(SourceReader, "partitions", lambda _: found)
    monkeypatch.setattr(SourceReader, "check", lambda _: Findings())
    context, _ = begin('path = "s3://lake/dt={date}/*.csv"', WEEKLY, INTERVAL)
    task = ValidateOperator(task_id="validate")
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    assert deferred.value.method_name == "look_again"
    (deadline,) = deferred.value.kwargs.values()
    with pytest.raises(TaskDeferred) as again:
        ValidateOperator(task_id="validate").look_again(context, {}, deadline)
    assert again.value.kwargs == deferred.value.kwargs
    with pytest.raises(AirflowFailException, match=r"\[data\] timeout"):
        ValidateOperator(task_id="validate").look_again(context, {}, "2026-01-01T00:00:00+00:00")


@pytest.mark.parametrize(
    ("team", "connection", "message"),
    [
        (
            "shop",
            "warehouse",
            r"data\.source\.connection: the team shop may not use this connection .*`connections`",
        ),
        ("lab", "secret", "may not use this connection"),
        ("lab", "missing", "the Airflow connection missing: .*ask the platform team to test"),
    ],
)
def test_a_connection_that_a_team_may_not_use_or_that_fails_rejects_the_spec(
    warehouse, store, team, connection, message
):
    text = SPEC.format(source=TABLE, columns="").replace('"warehouse"', f'"{connection}"')
    store.put(f"incoming/{team}/orders/spec.toml", text.encode())
    outcome = admit(store, team, "orders", check_connections=check_source)
    assert outcome.state == "rejected"
    assert re.search(message, outcome.message)


def test_a_source_without_rows_is_one_message(warehouse, store):
    empty = (datetime(2027, 1, 4, tzinfo=UTC), datetime(2027, 1, 11, tzinfo=UTC))
    with pytest.raises(
        DataError, match="warehouse: the query: data.source: the source has no rows .*interval"
    ):
        SourceReader("lab", spec(QUERY, WEEKLY)).snapshot(store, "orders", empty)


@pytest.fixture
def orders(tmp_path, monkeypatch, warehouse):
    """An Iceberg table with two snapshots, in a catalog that the connection `warehouse` names."""
    from pyiceberg.catalog.sql import SqlCatalog

    (tmp_path / "tables").mkdir()
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/tables"}
    about = {"conn_type": "generic", "extra": {"name": "prod", **properties, "token": "hidden-word"}}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(about))
    catalog = SqlCatalog("prod", **properties)
    catalog.create_namespace("sales")
    start = datetime(2026, 1, 5, tzinfo=UTC)
    days = [start + timedelta(days=day) for day in range(14)]
    frame = pl.DataFrame({"size": [1.5] * 14, "colour": ["red"] * 14, "paid": [0, 1] * 7, "day": days})
    table = catalog.create_table("sales.orders", frame.to_arrow().schema)
    table.append(frame.to_arrow())
    table.append(frame.to_arrow())
    return table


ORDERS = 'iceberg = "sales.orders"'


def test_a_run_records_the_snapshot_of_a_lake_table_that_it_read(begin, store, orders):
    context, outcome = begin(ORDERS)
    assert outcome.record.data == ()
    ValidateOperator(task_id="validate").execute(context)
    job, current = job_of(context), orders.metadata.current_snapshot_id
    assert job.inputs.source_version == current
    assert json.loads(store.get(job.run_file("run.json")))["source_version"] == current
    assert interval_tags(job)["dmls.source_version"] == str(current)
    assert len(pl.read_parquet(store.get(job.data[0].key))) == 28


def test_a_backfill_reads_no_lake_table_that_did_not_exist_at_the_end_of_its_interval(begin, orders):
    context, _ = begin(ORDERS, WEEKLY, INTERVAL)
    with pytest.raises(
        AirflowFailException, match=r"warehouse: sales.orders: .*snapshot from before 2026-01-12"
    ):
        ValidateOperator(task_id="validate").execute(context)


def test_other_runs_read_the_newest_lake_table_then_or_the_rows_of_their_interval(store, orders):
    newest = SourceReader("lab", spec(ORDERS, WEEKLY)).snapshot(store, "orders", INTERVAL, by_interval=True)
    assert newest.version == orders.metadata.current_snapshot_id
    by_time = SourceReader("lab", spec(ORDERS, WEEKLY, columns='time = "day"'))
    found = rows(store, by_time.snapshot(store, "orders", INTERVAL, by_interval=True))
    assert (found.height, found["day"].max()) == (14, datetime(2026, 1, 11, tzinfo=UTC))


@pytest.mark.parametrize(
    ("source", "extra", "message"),
    [
        (ORDERS, {}, "its extra has no uri, the address of a catalog"),
        (ORDERS, {"uri": "postgresql+psycopg://u:hidden-word@127.0.0.1:1/x"}, "Connection refused"),
        (ORDERS, {"conn_type": "aws"}, "it is one of AWS, which reads s3:// and not a catalog"),
        ('delta = "s3://others/orders"', {"sslmode": "require"}, "has no credentials for s3://"),
        (
            'iceberg = "s3://others/v1.metadata.json"',
            {"uri": "https://c", "s3.endpoint": "http://s3"},
            "no credentials",
        ),
        (
            'delta = "gs://others/orders"',
            {"sslkey": "a-key"},
            "has no credentials for gs://: add them to its extra",
        ),
        ('delta = "s3://others/orders"', {"s3.access-key-id": "a-key"}, "make it one of type AWS"),
        ('delta = "gs://others/orders"', {"gcs.oauth2.token": "a-key"}, "no credentials for gs://"),
        (
            'iceberg = "gs://others/v1.metadata.json"',
            {"google_service_account_key": "a-key"},
            "no credentials for gs://",
        ),
        ('iceberg = "s3://others/v1.metadata.json"', {"s3.anonymous": False}, "no credentials for s3://"),
        ('delta = "https://169.254.169.254/x"', {}, "reads no tables from https://: use s3://"),
    ],
    ids=[
        "catalog",
        "database",
        "aws",
        "s3-of-worker",
        "metadata-of-worker",
        "gs-of-worker",
        "iceberg-key",
        "iceberg-token",
        "delta-key",
        "not-anonymous",
        "scheme",
    ],
)
def test_a_connection_that_does_not_lead_to_a_table_is_one_message(
    orders, monkeypatch, source, extra, message
):
    kind = extra.pop("conn_type", "generic")
    about = {"conn_type": kind, "login": "a", "password": "hidden-word", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(about))
    (issue,) = check_source("lab", spec(source)).issues
    assert "the Airflow connection warehouse: " in str(issue)
    assert message in str(issue)
    assert "hidden-word" not in str(issue)
