"""A table of a real PostgreSQL server through an Airflow connection."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace

import psycopg
import pytest

from dmls_core.airflow.sources import connections
from dmls_core.airflow.sources.database_tables import read_table
from dmls_core.devstack.postgres import STUDY
from dmls_core.errors import DataError, PlatformError
from dmls_core.serving.predict.batch_scoring import TableRequest
from tests.services.postgres_server import PostgresServer


def test_rows_stream_from_postgresql_and_names_are_quoted(postgres: PostgresServer, tmp_path, monkeypatch):
    context, target = postgres.context, tmp_path / "rows.csv"
    secret = context.secret(f"{STUDY}_db_password")
    with psycopg.connect(postgres.study_url.replace("+psycopg", ""), autocommit=True) as database:
        database.execute('CREATE SCHEMA IF NOT EXISTS "Sales 1"')
        database.execute(
            'CREATE TABLE "Sales 1".orders AS SELECT i AS id, i / 4.0 AS size, '
            "CASE WHEN i % 2 = 0 THEN 'a,b' END AS colour, i > 2 AS big, '2026-01-05'::date AS day "
            "FROM generate_series(1, 20000) AS i"
        )
    try:
        connection = {"conn_type": "postgres", "host": "127.0.0.1", "port": context.port("postgres")}
        about = {"login": STUDY, "password": secret, "schema": STUDY}
        monkeypatch.setenv("AIRFLOW_CONN_SALES", json.dumps(connection | about))
        monkeypatch.setenv(
            "AIRFLOW_CONN_CLOSED", json.dumps(connection | about | {"password": "hidden-word"})
        )
        allowed = SimpleNamespace(connections={"sales": ["lab"], "closed": ["lab"]})
        monkeypatch.setattr(connections, "airflow_settings", lambda: allowed)

        read: list[int] = []
        read_table("lab", TableRequest(connection="sales", table="Sales 1.orders"), target, read.append)
        assert read == [5_000, 10_000, 15_000, 20_000]
        rows = list(csv.reader(target.open()))
        assert rows[0] == ["id", "size", "colour", "big", "day"]
        assert rows[1][0] == "1"
        assert float(rows[1][1]) == 0.25
        assert rows[1][2:] == ["", "False", "2026-01-05"]
        assert rows[2][2] == "a,b"
        assert len(rows) == 20_001
        with pytest.raises(DataError, match="no such table"):
            read_table("lab", TableRequest(connection="sales", table="Sales 2.orders"), target)
        with pytest.raises(PlatformError, match="the Airflow connection closed: ") as error:
            read_table("lab", TableRequest(connection="closed", table="Sales 1.orders"), target)
        assert "hidden-word" not in str(error.value)
    finally:
        postgres.empty()
