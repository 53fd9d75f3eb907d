"""Two teams of Airflow: no route of one team's jobs is open to the other, and no list shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.api_fastapi.common.db.common import _get_session
from airflow.models.dag import DagModel
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dmls_core.airflow import auth, settings
from dmls_core.airflow.api_keys import ApiKey
from dmls_core.airflow.settings import airflow_settings
from dmls_core.web import dependencies
from dmls_core.web.dependencies import signed_in
from dmls_core.web.services import job_index, platform_overview
from dmls_core.web.services.job_index import IndexSnapshot, JobRow
from dmls_core.web.services.queue import Lease, Wait
from tests.support.web_routes import FILTERED, LISTS, OF_TEAMS, ROUTES, fill
from tests.unit.conftest import ENTRY

NO_JOBS = {
    "GET /api/v1/catalogue",
    "POST /api/v1/sniff",
    "POST /api/v1/specs/toml",
    "POST /api/v1/specs/check",
    "GET /api/v1/platform/capacity",
    "GET /api/v1/platform/doctor",
    "GET /api/v1/openapi.json",
    "GET /platform/capacity",
    "GET /submit",
    "GET /api",
    "GET /static/{name}",
}
"""Routes without a team that show nothing of a job."""


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Bundle entries of two teams, for Airflow's multi-team mode."""
    shared = {**ENTRY, "kwargs": {**ENTRY["kwargs"], "approvers": {"alpha": ["ada"]}}}
    own = [
        {**shared, "name": f"dmls-{team}", "team_name": team, "kwargs": {**shared["kwargs"], "team": team}}
        for team in ("alpha", "beta")
    ]
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([*own, shared]))
    return [*own, shared]


@pytest.fixture
def teams(entries: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for cached in (settings.airflow_settings, settings.team_entries):
        cached.cache_clear()
    # Airflow has a DAG of neither team yet; its table of DAGs is not needed.
    monkeypatch.setattr(DagModel, "get_team_name", lambda _: None)
    monkeypatch.setattr(dependencies.database, "team_dags", lambda _, team: {f"dmls.{team}.iris"})
    yield
    for cached in (settings.airflow_settings, settings.team_entries):
        cached.cache_clear()


@pytest.fixture
def alice(app: FastAPI, teams: None) -> TestClient:
    """A member of team alpha, with every right but an administrator's."""
    user = SimpleAuthManagerUser(username="alice", role="OP", teams=["alpha"])
    app.dependency_overrides[signed_in] = lambda: user
    app.dependency_overrides[_get_session] = lambda: None
    return TestClient(app, raise_server_exceptions=False, headers={"Sec-Fetch-Site": "same-origin"})


def ask(client: TestClient, method: str, path: str, team: str) -> int:
    return client.request(method, fill(path, team), json={}, follow_redirects=False).status_code


def test_every_route_has_a_rule() -> None:
    others = {f"{method} {path}" for method, path in ROUTES if "{team}" not in path}
    assert others == LISTS | NO_JOBS, "a route without a team is new: say what it shows of jobs"
    assert {f"{method} {path}" for method, path in OF_TEAMS} > FILTERED


CLOSED = [(method, path) for method, path in OF_TEAMS if f"{method} {path}" not in FILTERED]


@pytest.mark.parametrize(("method", "path"), CLOSED, ids=str)
def test_no_route_crosses_to_another_team(
    alice: TestClient, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    if path.startswith("/api/v1/predictions/"):

        async def user(_: object) -> SimpleAuthManagerUser:
            return SimpleAuthManagerUser(username="alice", role="OP", teams=["alpha"])

        monkeypatch.setattr(dependencies.auth, "current_user", user)
    assert ask(alice, method, path, "beta") == 403
    decides = path.endswith(("/deploy", "/decline", "/rollback", "/undeploy"))
    assert (ask(alice, method, path, "alpha") == 403) == decides, "her own team is open, but for approvals"


def rows(*teams: str) -> tuple[JobRow, ...]:
    return tuple(JobRow(team=team, name="iris", state="deployed", message="secret") for team in teams)


def test_lists_show_the_own_team_alone(alice: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = IndexSnapshot(rows("alpha", "beta"), complete=True)
    monkeypatch.setattr(job_index.JobIndex, "snapshot", lambda _: snapshot)
    waits = {f"dmls.{team}.iris": Wait(1, "dmls_cpu", "busy") for team in ("alpha", "beta")}
    leases = [Lease(f"{t}/iris", f"dmls.{t}.iris", "r", 1, "dmls_cpu", None, "h") for t in ("alpha", "beta")]
    monkeypatch.setattr(platform_overview, "read_waits", lambda _: waits)
    monkeypatch.setattr(platform_overview, "read_leases", lambda _: leases)
    monkeypatch.setattr(platform_overview, "read_pools", lambda _: [])
    monkeypatch.setattr(platform_overview, "probe_all", lambda _: [])
    for route in sorted(LISTS):
        answer = alice.get(route.removeprefix("GET "))
        assert answer.status_code == 200, route
        assert "alpha" in answer.text, route
        assert "beta" not in answer.text, route


def test_files_of_another_team_are_not_listed(alice: TestClient, root: Any, accept: Any) -> None:
    from dmls_core.store import open_store
    from dmls_core.web.services import submissions

    accept("alpha", "iris")
    accept("beta", "iris")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submissions, "open_store", lambda: open_store(str(root)))
        assert "data.csv" in alice.get("/api/v1/drops/alpha").text
        assert "data.csv" not in alice.get("/api/v1/drops/beta").text


def test_an_api_key_opens_its_own_team_alone(alice: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    key = ApiKey(
        id="0" * 12,
        name="k",
        team="alpha",
        job=None,
        created="2026-01-01T00:00:00Z",
        created_by="a",
        expires=None,
    )
    monkeypatch.setattr(dependencies.api_keys, "read_key", lambda _: key)
    for team, allowed in (("alpha", True), ("beta", False)):
        answer = alice.post(
            f"/api/v1/predictions/{team}/iris", headers={"Authorization": "Bearer dmls_x"}, json={}
        )
        assert (answer.status_code != 403) == allowed


def test_approvers_decide_alone(app: FastAPI, teams: None) -> None:
    assert airflow_settings().approvers == {"alpha": ["ada"]}
    for name, allowed in (("ada", True), ("alice", False)):
        user = SimpleAuthManagerUser(username=name, role="USER", teams=["alpha"])
        app.dependency_overrides[signed_in] = lambda user=user: user
        client = TestClient(app, raise_server_exceptions=False, headers={"Sec-Fetch-Site": "same-origin"})
        for command in ("deploy", "decline", "undeploy", "rollback"):
            status = ask(client, "POST", f"/api/v1/jobs/{{team}}/{{name}}/{command}", "alpha")
            assert (status != 403) == allowed, (name, command)


@pytest.mark.parametrize(("role", "allowed"), [(None, False), ("VIEWER", True)])
def test_work_without_a_job_needs_a_role(app: FastAPI, teams: None, role: str | None, allowed: bool) -> None:
    app.dependency_overrides[signed_in] = lambda: SimpleAuthManagerUser(username="eve", role=role)
    client = TestClient(app, raise_server_exceptions=False, headers={"Sec-Fetch-Site": "same-origin"})
    for path in ("/api/v1/sniff?file=a.csv&size=8", "/api/v1/specs/toml", "/api/v1/specs/check"):
        assert (client.post(path, json={}).status_code != 403) == allowed, path


@pytest.mark.parametrize(
    ("method", "entity", "granted"),
    [
        ("GET", None, {"lab", "shop"}),
        ("PUT", None, {"shop"}),
        ("DELETE", None, set()),
        ("POST", None, set()),
        ("GET", DagAccessEntity.RUN, {"lab", "shop"}),
        ("POST", DagAccessEntity.RUN, {"shop"}),
        ("PUT", DagAccessEntity.HITL_DETAIL, set()),
    ],
)
def test_roles_decide_on_jobs_that_have_no_dag_yet(
    monkeypatch: pytest.MonkeyPatch, method: Any, entity: DagAccessEntity | None, granted: set[str]
) -> None:
    """As FAB has it, which knows no permission of such a DAG: also what belongs to it must be allowed."""

    class Manager:
        def is_authorized_dag(self, *, access_entity: Any, details: Any = None, **_: Any) -> bool:
            return details is None and access_entity == DagAccessEntity.RUN

        def filter_authorized_dag_ids(self, **_: Any) -> set[str]:
            return {"dmls.bank.iris"}

    roles = {"shop": {"shop": ["can_read", "can_edit"]}, "lab": {"guest": ["can_read"]}, "bank": {}}
    configured = SimpleNamespace(access_control=roles)
    monkeypatch.setattr(auth, "get_auth_manager", Manager)
    monkeypatch.setattr(auth, "airflow_settings", lambda: configured)
    monkeypatch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "airflow.providers.fab.auth_manager.FabAuthManager")
    user: Any = SimpleNamespace(roles=[SimpleNamespace(name="shop"), SimpleNamespace(name="guest")])
    stranger: Any = SimpleNamespace(roles=[])
    teams = ("shop", "lab", "bank", "other")
    allowed = {team for team in teams if auth.is_authorized(user, method, f"dmls.{team}.new", entity)}
    assert allowed == granted
    assert not any(auth.is_authorized(stranger, method, f"dmls.{team}.new", entity) for team in teams)
    if entity is None:
        dags = {f"dmls.{team}.iris" for team in teams}
        expected = {f"dmls.{team}.iris" for team in granted} | {"dmls.bank.iris"}
        assert auth.authorized_dags(user, dags, method) == expected
    monkeypatch.delenv("AIRFLOW__CORE__AUTH_MANAGER")
    assert not any(auth.is_authorized(user, method, f"dmls.{team}.new", entity) for team in teams), "no FAB"
