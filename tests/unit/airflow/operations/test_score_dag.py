"""The scoring DAG: what it scores, and which tables a team may read."""

from __future__ import annotations

import asyncio
import csv
import json
import sqlite3
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dmls_core.airflow.operations import score_dag
from dmls_core.airflow.operations.score_dag import FindOperator, ScoreOperator
from dmls_core.airflow.operations.scoring_trigger import ScoringTrigger
from dmls_core.airflow.settings import open_with_connection
from dmls_core.airflow.sources import connections
from dmls_core.airflow.sources.database_tables import read_table
from dmls_core.errors import DataError, PlatformError
from dmls_core.serving.predict.batch_scoring import TableRequest
from dmls_core.store import open_store
from dmls_core.testing.stores import run_coroutine
from tests.support.suite_bucket import serve_suite_bucket, suite_connection


@pytest.fixture
def store(root, monkeypatch):
    store = open_store(str(root))
    monkeypatch.setattr(score_dag, "open_root", lambda _: store)
    return store


def find(job="", files=(), events=()):
    context = {
        "params": {"job": job, "files": list(files)},
        "triggering_asset_events": {"asset": [SimpleNamespace(extra={"payload": e}) for e in events]},
    }
    return FindOperator(task_id="find").execute(context)


def test_events_name_the_files_and_a_user_may_name_them(store):
    for name in ("a.csv", "b.csv"):
        store.put(f"scoring/lab/iris/{name}", b"x")
    event = {"changed": [["lab", "iris", "a.csv"], ["lab", "iris", "gone.csv"]]}
    assert find(events=[event, event]) == [[("lab", "iris", "a.csv")]]
    assert find("lab/iris", ["b.csv"]) == [[("lab", "iris", "b.csv")]]
    assert find("lab/iris") == [[("lab", "iris", "a.csv")], [("lab", "iris", "b.csv")]]
    with pytest.raises(AirflowSkipException, match="nothing to score"):
        find(events=[])
    with pytest.raises(AirflowFailException, match="cannot name a team"):
        find("../iris")


def test_many_files_share_the_tasks(store, monkeypatch):
    monkeypatch.setattr(score_dag, "MAX_TASKS", 2)
    assert [len(files) for files in find("lab/iris", "abcde")] == [3, 2]


def test_a_failing_file_does_not_stop_the_others(store, monkeypatch):
    def score(self, store, team, job, file):
        if file == "bad.csv":
            raise DataError("bad.csv: column 'x', row 2: 'y' is not a number")
        return {"file": file}

    monkeypatch.setattr(ScoreOperator, "_score", score)
    files = [("lab", "iris", name) for name in ("bad.csv", "good.csv")]
    with pytest.raises(AirflowFailException, match=r"^lab/iris: bad.csv: column 'x', row 2"):
        ScoreOperator(task_id="score", files=files).execute({})
    assert ScoreOperator(task_id="score", files=files[1:]).execute({}) == [{"file": "good.csv"}]


def test_a_failing_service_does_not_stop_the_others_either(store, monkeypatch):
    scored = []

    def score(self, store, team, job, file):
        if file == "bad.csv":
            raise PlatformError("Triton does not answer")
        if file == "odd.csv":
            raise KeyError("x")
        scored.append(file)

    monkeypatch.setattr(ScoreOperator, "_score", score)
    files = [("lab", "iris", name) for name in ("bad.csv", "odd.csv", "good.csv")]
    with pytest.raises(PlatformError, match=r"^lab/iris/bad\.csv: Triton .*; lab/iris/odd\.csv: 'x'$"):
        ScoreOperator(task_id="score", files=files).execute({})
    assert scored == ["good.csv"]


TOO_LONG = "m/" * 500 + "d.csv"
BAD_NAMES = ("bad\x01.csv", "b\\d.csv", "x//d.csv", "l\u2028.csv", "n" * 251, TOO_LONG)
"""Names that S3 has; of the last two, the record's would be too long."""


@pytest.fixture
def s3_root(monkeypatch):
    """The root of a store in S3 with the files of two teams, whose other names are ``BAD_NAMES``."""
    service = serve_suite_bucket()
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", suite_connection(next(service)))
    root = "s3://suite"
    store = open_with_connection(root, "aws_default")
    monkeypatch.setattr(score_dag, "open_root", lambda _: store)
    for name in (*BAD_NAMES, "good.csv", "_hidden.csv", "folder/"):
        store.client.put_object(Bucket="suite", Key=f"scoring/lab/iris/{name}", Body=b"x")
    store.put("scoring/shop/cart/good.csv", b"x")
    yield root
    next(service, None)


def test_a_name_that_no_store_can_hold_stops_no_other_and_is_logged(s3_root, caplog):
    async def first():
        return await anext(ScoringTrigger(s3_root, "aws_default", 0.05).run())

    good = [("lab", "iris", "good.csv"), ("shop", "cart", "good.csv")]
    assert run_coroutine(asyncio.wait_for(first(), timeout=60)).payload["changed"] == good
    (warning,) = [record.getMessage() for record in caplog.records if "not scored" in record.getMessage()]
    assert warning.startswith(
        f"{len(BAD_NAMES)} files are not scored, for their names: scoring/lab/iris/b\\d.csv, "
    )
    assert "scoring/lab/iris/bad\\u0001.csv" in warning
    assert "hidden" not in warning
    # Triggers of earlier releases have named them.
    named = [["lab", "iris", name] for name in BAD_NAMES]
    assert find(events=[{"changed": [*named, *map(list, good)]}]) == [[one] for one in good]
    assert find("lab/iris") == [[good[0]]]


def test_the_trigger_fires_for_new_files_and_for_the_same_file_written_again(root):
    store = open_store(str(root))
    store.put("scoring/lab/iris/a.csv", b"x")
    store.put("scoring/lab/iris/.hidden", b"x")

    async def events():
        found = []
        async for event in ScoringTrigger(str(root), "", 0.05).run():
            found.append(event.payload["changed"])
            if len(found) == 1:
                store.put("scoring/lab/iris/sub/b.csv", b"x")
            elif len(found) == 2:
                store.put("scoring/lab/iris/a.csv", b"x")
            else:
                break
        return found

    a, b = ("lab", "iris", "a.csv"), ("lab", "iris", "sub/b.csv")
    assert run_coroutine(asyncio.wait_for(events(), timeout=60)) == [[a], [b], [a]]


@pytest.fixture
def warehouse(tmp_path, monkeypatch):
    """A real database behind an Airflow connection that the team ``lab`` may use."""
    path = tmp_path / "warehouse.db"
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE "order lines" (id INTEGER, size REAL, colour TEXT)')
        rows = [(i, None if i % 2 else i / 4, f"c,{i}") for i in range(12_000)]
        database.executemany('INSERT INTO "order lines" VALUES (?, ?, ?)', rows)
        database.execute('CREATE VIEW big AS SELECT id FROM "order lines" WHERE id >= 11998')
    connection = {"conn_type": "sqlite", "host": str(path)}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
    monkeypatch.setenv("AIRFLOW_CONN_HTTP", json.dumps({"conn_type": "http", "host": "localhost"}))
    allowed = {"warehouse": ["lab"], "http": ["*"], "missing": ["*"]}
    monkeypatch.setattr(connections, "airflow_settings", lambda: SimpleNamespace(connections=allowed))


def request(connection, table):
    return TableRequest(connection=connection, table=table)


def test_a_table_or_view_becomes_a_csv(warehouse, tmp_path):
    target = tmp_path / "rows.csv"
    read_table("lab", request("warehouse", "order lines"), target)
    rows = list(csv.reader(target.open()))
    assert rows[:3] == [["id", "size", "colour"], ["0", "0.0", "c,0"], ["1", "", "c,1"]]
    assert len(rows) == 12_001
    read_table("lab", request("warehouse", "main.big"), target)
    assert target.read_text().split() == ["id", "11998", "11999"]


@pytest.mark.parametrize(
    ("team", "connection", "table", "kind", "message"),
    [
        ("shop", "warehouse", "big", DataError, "the team shop may not use this connection"),
        ("lab", "secret", "big", DataError, "may not use this connection"),
        ("lab", "warehouse", "none", DataError, "no such table"),
        ("lab", "warehouse", 'big"; DROP TABLE "order lines', DataError, "no such table"),
        ("lab", "warehouse", "big UNION SELECT 1", DataError, "no such table"),
        ("lab", "missing", "big", PlatformError, "the Airflow connection missing: "),
        ("lab", "http", "big", PlatformError, "the Airflow connection http: "),
    ],
    ids=["team", "connection", "table", "injection", "statement", "missing", "no-database"],
)
def test_what_cannot_be_read_is_one_message(warehouse, tmp_path, team, connection, table, kind, message):
    with pytest.raises(kind, match=message):
        read_table(team, request(connection, table), tmp_path / "rows.csv")
    assert not (tmp_path / "rows.csv").exists()
