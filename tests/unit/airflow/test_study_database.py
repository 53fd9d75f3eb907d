"""The study database: from an Airflow connection to a URL in the trainer's environment."""

from __future__ import annotations

import pytest
from airflow.sdk import Connection

from dmls_core.airflow.study_database import check_reachable, study_environment, study_url
from dmls_core.errors import RunnerError
from dmls_core.settings import STUDY_VARIABLE


def test_only_a_search_with_several_workers_gets_the_url(job, connection):
    environment = study_environment(job(2))
    assert environment == {STUDY_VARIABLE: "postgresql+psycopg://me:secret@db.example.com:5433/studies"}
    assert study_environment(job(1)) == {}


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (
            {"host": "db", "login": "a@b", "password": "p/w:x", "schema": "s"},
            "postgresql+psycopg://a%40b:p%2Fw%3Ax@db/s",
        ),
        (
            {"host": "/run/pg", "port": 5433, "login": "u", "password": "p", "schema": "s"},
            "postgresql+psycopg://u:p@/s?host=%2Frun%2Fpg&port=5433",
        ),
        (
            {"host": "db", "login": "u", "password": "p", "schema": "s", "extra": '{"sslmode": "require"}'},
            "postgresql+psycopg://u:p@db/s?sslmode=require",
        ),
    ],
)
def test_a_connection_becomes_a_url_that_sqlalchemy_reads(connection, url):
    import sqlalchemy

    made = study_url(Connection(conn_id="dmls_study", conn_type="postgres", **connection))

    assert made == url
    read = sqlalchemy.make_url(made)
    assert (read.username, read.password) == (connection["login"], connection["password"])


@pytest.mark.parametrize(
    ("address", "network", "reason"),
    [
        ("u:secret@db.example.com:5432/s", "bridge", ""),
        ("u:secret@127.0.0.1:5432/s", "host", ""),
        ("u:secret@127.0.0.1:5432/s", "bridge", "is the container itself"),
        ("u:secret@localhost/s", "dmls_default", "is the container itself"),
        ("u:secret@/s?host=%2Frun%2Fpg", "host", "/run/pg"),
    ],
)
def test_a_url_that_no_container_reaches_is_refused(address: str, network: str, reason: str):
    environment = {STUDY_VARIABLE: f"postgresql+psycopg://{address}"}

    if not reason:
        check_reachable(environment, network)
        check_reachable({}, network)
        return
    with pytest.raises(RunnerError, match=reason) as caught:
        check_reachable(environment, network)
    assert "secret" not in str(caught.value)
