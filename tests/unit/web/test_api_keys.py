"""API keys: what they open, who manages them, and where they are refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.common.db.common import _get_session
from airflow.models.base import Base
from airflow.models.log import Log
from airflow.models.variable import Variable
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from dmls_core.airflow import api_keys, database
from dmls_core.store import open_store
from dmls_core.web import dependencies
from dmls_core.web.dependencies import signed_in
from dmls_core.web.routers import keys
from dmls_core.web.services import request_quotas, table_predictions
from dmls_core.web.services.table_predictions import TablePredictions
from tests.support.airflow_database import add_dag, memory_database

ROWS = [{"size": 1.5}]
PREDICTED = b'[{"prediction": "good"}]'
JOB_KEYS, TEAM_KEYS = "/api/v1/jobs/lab/iris/keys", "/api/v1/teams/lab/keys"
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Airflow's database, with the DAGs of two jobs of a team."""
    with memory_database() as engine, Session(engine) as session:
        for job in ("lab.iris", "lab.wine", "lab2.iris"):
            add_dag(session, f"dmls.{job}")
        session.commit()

        @contextmanager
        def opened() -> Iterator[Session]:
            yield session
            session.commit()

        monkeypatch.setattr(database, "create_session", opened)
        yield session
    api_keys._cache.clear()


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """(Method, job) pairs that Airflow allows the user."""
    found = {("PUT", "lab/iris"), ("PUT", "lab/wine"), ("PUT", "lab/*")}

    def authorized(_user: Any, dag_ids: set[str], method: str) -> set[str]:
        return {each for each in dag_ids if (method, "/".join(each.split(".")[1:])) in found}

    def is_authorized(user: Any, method: str, dag_id: str, _: Any = None) -> bool:
        return bool(authorized(user, {dag_id}, method))

    monkeypatch.setattr(dependencies.auth, "authorized_dags", authorized)
    monkeypatch.setattr(dependencies.auth, "is_authorized", is_authorized)
    return found


@pytest.fixture
def admin(
    app: FastAPI, session: Session, granted: Any, accept: Any, root: Any, monkeypatch: pytest.MonkeyPatch
) -> TestClient:
    """The REST API for a user who has signed in, with the job lab/iris in the store."""
    accept("lab", "iris")
    monkeypatch.setattr(keys, "open_store", lambda: open_store(str(root)))
    app.dependency_overrides[signed_in] = lambda: SimpleNamespace(get_name=lambda: "ada")
    app.dependency_overrides[_get_session] = lambda: session
    return TestClient(app, raise_server_exceptions=False, headers=SAME_ORIGIN)


@pytest.fixture
def analyst(admin: TestClient, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """The REST API for someone without a login, with models that answer everything."""
    predicted = TablePredictions(PREDICTED, "empty-row=1")
    monkeypatch.setattr(table_predictions, "_predict", lambda *_: predicted)
    del admin.app.dependency_overrides[signed_in]  # type: ignore[attr-defined]
    return TestClient(admin.app, raise_server_exceptions=False)


def ask(client: TestClient, key: str, job: str = "lab/iris", **options: Any) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {key}"} | options.pop("headers", {})
    answer = client.post(f"/api/v1/predictions/{job}", json=ROWS, headers=headers, **options)
    return answer.status_code, answer.text if answer.is_success else answer.json()["detail"]


def test_a_key_is_shown_once_and_only_its_hash_is_stored(admin: TestClient, session: Session):
    made = admin.post(JOB_KEYS, json={"name": " shop ", "days": 30})
    assert made.status_code == 201, made.text
    body = made.json()
    key = body.pop("key")
    assert key.startswith(f"dmls_{body['id']}_")
    assert (body["name"], body["team"], body["job"], body["created_by"]) == ("shop", "lab", "iris", "ada")
    assert timedelta(days=29) < datetime.fromisoformat(body["expires"]) - datetime.now(UTC)
    listed = admin.get(JOB_KEYS)
    assert listed.json() == [body]
    assert key.rpartition("_")[2] not in listed.text
    (variable,) = session.scalars(select(Variable))
    assert key.rpartition("_")[2] not in f"{variable.key} {variable.val} {variable.description}"
    assert len(json.loads(variable.val)["sha256"]) == 64
    event = session.scalars(select(Log)).one()
    assert (event.event, event.dag_id, event.owner) == (api_keys.CREATED, "dmls.lab.iris", "ada")
    assert key.rpartition("_")[2] not in event.extra


def test_a_key_opens_its_job_or_the_jobs_of_its_team_and_nothing_else(analyst: TestClient):
    _, own = api_keys.create_key("lab", "iris", "own", "ada")
    _, team = api_keys.create_key("lab", None, "all", "ada")
    assert ask(analyst, own) == ask(analyst, team) == (200, PREDICTED.decode())
    assert ask(analyst, team, "lab/wine")[0] == 200
    assert ask(analyst, own, "lab/wine") == (403, "the API key 'own' opens lab/iris, not lab/wine")
    assert ask(analyst, team, "lab2/iris")[0] == ask(analyst, own, "lab2/iris")[0] == 403


def test_a_key_opens_no_other_route(analyst: TestClient):
    _, key = api_keys.create_key("lab", None, "all", "ada")
    headers = {"Authorization": f"Bearer {key}", **SAME_ORIGIN}
    tried = 0
    for route in analyst.app.routes:  # type: ignore[attr-defined]
        path = route.path.format(team="lab", name="iris", run_id="r", upload="1", number=1, key_id="0" * 12)
        for method in route.methods - {"HEAD"}:
            if path.startswith("/api/v1/predictions/"):
                continue
            answer = analyst.request(method, path, headers=headers, follow_redirects=False)
            assert answer.status_code in (303, 401, 403), (method, path, answer.text)
            if path.startswith("/api/"):
                assert "an API key only opens POST /predictions" in answer.text, (method, path)
            tried += 1
    assert tried > 40


def test_wrong_keys_are_refused_in_the_same_words(analyst: TestClient):
    made, key = api_keys.create_key("lab", "iris", "own", "ada")
    other = "0" * 48
    for wrong in (
        f"dmls_{made.id}_{other}",
        f"dmls_{'0' * 12}_{key.rpartition('_')[2]}",
        key + "0",
        key[:-1],
        "dmls_",
        f"dmls_{made.id}_é",
    ):
        headers = {"Authorization": f"Bearer {wrong}".encode()}
        answer = analyst.post("/api/v1/predictions/lab/iris", json=ROWS, headers=headers)
        assert answer.status_code == 401
        assert answer.json()["detail"] == "the API key is wrong or revoked"
        assert answer.headers["www-authenticate"] == "Bearer"
    assert ask(analyst, key)[0] == 200
    assert ask(analyst, f"dmls_{made.id}_{other}")[0] == 401, "the cached record accepts no other secret"


def test_a_key_is_read_from_the_header_alone(analyst: TestClient):
    _, key = api_keys.create_key("lab", "iris", "own", "ada")
    url = "/api/v1/predictions/lab/iris"
    for name in ("key", "api_key", "token", "access_token", "authorization"):
        answer = analyst.post(url, json=ROWS, params={name: key}, headers=SAME_ORIGIN)
        assert answer.status_code == 401, name
    assert analyst.post(url, json=ROWS, headers=SAME_ORIGIN, cookies={"_token": key}).status_code in (
        401,
        403,
    )
    basic = {"Authorization": f"Basic {key}", **SAME_ORIGIN}
    assert analyst.post(url, json=ROWS, headers=basic).status_code == 401


def test_an_expired_key_is_refused_also_from_the_cache(analyst: TestClient, monkeypatch: pytest.MonkeyPatch):
    _, key = api_keys.create_key("lab", "iris", "own", "ada", days=1)
    assert ask(analyst, key)[0] == 200

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=1, minutes=1)

    monkeypatch.setattr(api_keys, "datetime", Tomorrow)
    status, detail = ask(analyst, key)
    assert (status, detail.startswith("the API key 'own' expired on ")) == (401, True)


def test_a_revoked_key_is_refused_at_once_here_and_soon_elsewhere(
    analyst: TestClient, session: Session, monkeypatch: pytest.MonkeyPatch
):
    made, key = api_keys.create_key("lab", "iris", "own", "ada")
    assert ask(analyst, key)[0] == 200
    elsewhere = dict(api_keys._cache)
    api_keys.revoke_key(made.id, "lab", "iris", "ada")
    assert ask(analyst, key)[0] == 401
    api_keys._cache.update(elsewhere)  # as in another process
    now = api_keys.time.monotonic()
    monkeypatch.setattr(api_keys.time, "monotonic", lambda: now + api_keys.SECONDS)
    assert ask(analyst, key)[0] == 401
    assert [event.event for event in session.scalars(select(Log).order_by(Log.id))] == [
        api_keys.CREATED,
        api_keys.REVOKED,
    ]


def test_predictions_read_a_record_once_in_a_while(analyst: TestClient, monkeypatch: pytest.MonkeyPatch):
    _, key = api_keys.create_key("lab", "iris", "own", "ada")
    read: list[str] = []
    find = api_keys._find
    monkeypatch.setattr(api_keys, "_find", lambda identity: read.append(identity) or find(identity))
    for _ in range(5):
        assert ask(analyst, key)[0] == 200
    assert len(read) == 1


def test_keys_of_a_team_need_the_right_to_change_its_jobs(admin: TestClient, granted: set[tuple[str, str]]):
    made = admin.post(TEAM_KEYS, json={"name": "all"})
    assert (made.status_code, made.json()["job"]) == (201, None)
    own = admin.post(JOB_KEYS, json={"name": "own"}).json()
    assert [key["name"] for key in admin.get(JOB_KEYS).json()] == ["own", "all"]
    assert admin.delete(f"{JOB_KEYS}/{made.json()['id']}").status_code == 404, "it is the team's"
    for missing in ("lab/*", "lab/wine"):
        granted.discard(("PUT", missing))
        for method, path in (("GET", ""), ("POST", ""), ("DELETE", f"/{own['id']}")):
            answer = admin.request(method, TEAM_KEYS + path, json={"name": "all"})
            assert answer.status_code == 403, (missing, method)
        granted.add(("PUT", missing))
    assert admin.get("/api/v1/teams/none/keys").status_code == 403
    assert admin.delete(f"{TEAM_KEYS}/{made.json()['id']}").json()["name"] == "all"
    assert admin.delete(f"{TEAM_KEYS}/{own['id']}").json()["name"] == "own"
    assert admin.get(JOB_KEYS).json() == []


def test_keys_of_a_job_need_the_right_to_change_it(admin: TestClient, granted: set[tuple[str, str]]):
    granted.clear()
    granted.add(("GET", "lab/iris"))
    for method, path in (("GET", ""), ("POST", ""), ("DELETE", f"/{'0' * 12}")):
        assert admin.request(method, JOB_KEYS + path, json={"name": "own"}).status_code == 403, method


@pytest.mark.parametrize(
    ("job", "body", "status"),
    [
        ("lab/iris", {"name": ""}, 422),
        ("lab/iris", {"name": "a\x1b[2J"}, 422),
        ("lab/iris", {"name": "a", "days": 0}, 422),
        ("lab/iris", {"name": "a", "secret": "mine"}, 422),
        ("lab/wine", {"name": "a"}, 404),
    ],
    ids=["no name", "control characters", "no days", "unknown field", "no such job"],
)
def test_what_is_no_key_is_refused(admin: TestClient, job: str, body: dict[str, Any], status: int):
    assert admin.post(f"/api/v1/jobs/{job}/keys", json=body).status_code == status


def test_variables_of_airflow_teams_are_no_keys(analyst: TestClient, session: Session):
    """Members of a team may write its variables, whatever job they name."""
    made, key = api_keys.create_key("lab", "iris", "own", "ada")
    session.execute(insert(Base.metadata.tables["team"]).values(name="theirs"))
    variable = session.scalars(select(Variable)).one()
    variable.team_name = "theirs"
    session.commit()
    assert ask(analyst, key)[0] == 401
    variable.team_name, variable.key = None, "dmls_key.000000000000"
    session.commit()
    assert ask(analyst, key.replace(made.id, "0" * 12))[0] == 401, "the record names another ID"
    variable.val = "no JSON"
    session.commit()
    assert ask(analyst, key)[0] == 401


def test_no_key_is_logged(
    analyst: TestClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.DEBUG)
    made, key = api_keys.create_key("lab", "iris", "own", "ada")
    ask(analyst, key)
    ask(analyst, key, "lab/wine")
    ask(analyst, key[:-1])
    monkeypatch.setattr(table_predictions, "_predict", lambda *_: 1 / 0)
    assert ask(analyst, key)[0] == 500
    api_keys.revoke_key(made.id, "lab", "iris", "ada")
    secret = key.rpartition("_")[2][:-1]
    assert secret not in caplog.text


def test_a_request_gets_the_id_that_it_sends_or_a_new_one(analyst: TestClient):
    _, key = api_keys.create_key("lab", "iris", "own", "ada")
    headers = {"Authorization": f"Bearer {key}"}
    post = partial(analyst.post, "/api/v1/predictions/lab/iris", json=ROWS)
    assert post(headers={**headers, "X-Request-ID": "order-17"}).headers["X-Request-ID"] == "order-17"
    answer = post(headers=headers)
    assert len(answer.headers["X-Request-ID"]) == 32
    assert answer.headers["DMLS-Notes"] == "empty-row=1"


def test_a_key_gets_the_quota_of_its_team_and_no_more(analyst: TestClient, monkeypatch: pytest.MonkeyPatch):
    quotas = SimpleNamespace(requests_per_minute={"lab": 2})
    monkeypatch.setattr(request_quotas, "airflow_settings", lambda: quotas)
    monkeypatch.setattr(request_quotas, "_answered", {})
    _, key = api_keys.create_key("lab", None, "all", "ada")
    assert ask(analyst, key[:-1])[0] == 401, "what is refused is not counted"
    assert [ask(analyst, key)[0] for _ in range(2)] == [200, 200]
    _, other = api_keys.create_key("lab", "iris", "own", "ada")
    headers = {"Authorization": f"Bearer {other}"}
    refused = analyst.post("/api/v1/predictions/lab/iris", json=ROWS, headers=headers)
    assert (refused.status_code, refused.headers["content-type"]) == (429, "application/problem+json")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["detail"].endswith(f"try again in {refused.headers['retry-after']} s")
