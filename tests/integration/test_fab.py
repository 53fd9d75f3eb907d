"""Airflow's FAB auth manager: logins, and two teams on every route of the page, asked over HTTP."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from dmls_core.devstack.supervisor import http_answers, wait_until
from dmls_core.models import load_spec
from dmls_core.store import Registry, open_store
from tests.services.seaweed import free_ports
from tests.support.web_routes import FILTERED, LISTS, OF_TEAMS, fill

pytest.importorskip("airflow.providers.fab", reason="apache-airflow-providers-fab is not installed")

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "how-to" / "operate.md"
TEAMS = ("shop", "bank")
EVERYTHING = ["can_read", "can_edit", "can_delete"]
ADA = "2"
"""FAB's ID of the second user of ``tests.support.fab_server``."""

SPEC = b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n'


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an API server with FAB's users, roles of the guide, and a job for each of two teams."""
    folder = tmp_path_factory.mktemp("fab")
    (folder / "roles.json").write_text(guide_block("json", '"HITL Detail"'))
    store = open_store(str(folder / "root"))
    for team in TEAMS:
        info = store.put(f"incoming/{team}/iris/data.csv", b"a,y\n1,x\n2,z\n")
        store.put(f"incoming/{team}/iris/spec.toml", SPEC)
        Registry(store).accept(load_spec(SPEC), team, "iris", [info], datetime.now(UTC))
    kwargs = {
        "root": str(folder / "root"),
        "runner": "process",
        "access_control": {team: {team: EVERYTHING, "missing": ["can_read"]} for team in TEAMS},
        "approvers": {"shop": [ADA]},
    }
    entry = {"name": "dmls", "classpath": "dmls_core.airflow.bundle.DmlsBundle", "kwargs": kwargs}
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    environment = os.environ | {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__SECRET_KEY": os.urandom(32).hex(),
        "AIRFLOW__API_AUTH__JWT_SECRET": os.urandom(64).hex(),
        "AIRFLOW__CORE__AUTH_MANAGER": "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([entry]),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(folder / "bundles"),
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    }
    command = [sys.executable, "-m", "tests.support.fab_server", str(port), str(folder / "roles.json")]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        wait_until(lambda: server.poll() is not None or http_answers(f"{url}/api/v2/version"), 180)
        assert server.poll() is None, (folder / "log").read_text()[-3000:]
        yield url
    finally:
        server.terminate()
        server.wait(30)


def guide_block(language: str, word: str) -> str:
    """Return the code block of the guide that contains ``word``."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if word in block]
    return block


@pytest.fixture(scope="module")
def client(airflow: str) -> Iterator[Callable[[str], httpx.Client]]:
    """Return the client of a user, with a token of ``POST /auth/token``."""
    clients: dict[str, httpx.Client] = {}

    def _client(user: str) -> httpx.Client:
        if user not in clients:
            login = {"username": user, "password": user}
            token = httpx.post(f"{airflow}/auth/token", json=login, timeout=60).raise_for_status()
            headers = {"Authorization": f"Bearer {token.json()['access_token']}"}
            clients[user] = httpx.Client(base_url=airflow, headers=headers, timeout=60)
        return clients[user]

    yield _client
    for made in clients.values():
        made.close()


def statuses(asker: httpx.Client, team: str) -> dict[str, httpx.Response]:
    """Return the response of every route of a team, by method and path."""

    def ask(route: tuple[str, str]) -> tuple[str, httpx.Response]:
        method, path = route
        return f"{method} {path}", asker.request(method, "/dmls" + fill(path, team), json={})

    with ThreadPoolExecutor(4) as pool:
        return dict(pool.map(ask, OF_TEAMS))


@pytest.mark.parametrize(
    ("user", "team"),
    [("ada", "bank"), ("bea", "shop"), ("tess", "shop"), ("tess", "bank"), ("nora", "shop")],
)
def test_no_route_crosses_to_another_team(
    client: Callable[[str], httpx.Client], user: str, team: str
) -> None:
    """``tess`` has the role of all teams' members, but of no team; ``nora`` has no role."""
    answers = statuses(client(user), team)
    for route in FILTERED:
        answer = answers.pop(route)
        assert (answer.status_code, answer.json()["files"]) == (200, []), route
    assert {route: answer.status_code for route, answer in answers.items() if answer.status_code != 403} == {}


def test_lists_show_the_own_team_alone(client: Callable[[str], httpx.Client]) -> None:
    wait_until(lambda: client("ada").get("/dmls/api/v1/jobs").json()["complete"], 60)
    for user, own, other in (("ada", "shop", "bank"), ("bea", "bank", "shop")):
        for route in sorted(LISTS):
            answer = client(user).get("/dmls" + route.removeprefix("GET "))
            assert other not in answer.text, (user, route)
            assert own in answer.text or "jobs" not in route, (user, route)
    for user in ("tess", "nora"):
        assert client(user).get("/dmls/api/v1/jobs").json()["jobs"] == []
    assert client("vic").get("/dmls/api/v1/jobs").json()["teams"] == ["bank", "shop"], "a viewer sees all"
    for user in ("ada", "bea"):
        dags = client(user).get("/api/v2/dags").json()["dags"]
        assert [dag["dag_id"] for dag in dags] == [f"dmls.{'shop' if user == 'ada' else 'bank'}.iris"]


def test_a_member_submits_a_job_that_has_no_dag_yet(client: Callable[[str], httpx.Client]) -> None:
    """FAB knows no permission of its DAG."""
    path, toml = "/dmls/api/v1/drops/shop/fresh", {"toml": SPEC.decode()}
    for user in ("bea", "tess", "vic", "nora"):
        assert client(user).put(f"{path}/spec", json=toml).status_code == 403, user
    client("ada").put(f"{path}/spec", json=toml).raise_for_status()
    for user, allowed in (("ada", True), ("ali", True), ("bea", False), ("tess", False), ("nora", False)):
        assert client(user).get(path).status_code == (200 if allowed else 403), user
        job = client(user).get("/dmls/api/v1/jobs/shop/fresh")
        assert job.status_code == (404 if allowed else 403), f"{user}: intake has not admitted it"


def test_keys_of_a_team_open_its_own_jobs_alone(airflow: str, client: Callable[[str], httpx.Client]) -> None:
    made = client("ada").post("/dmls/api/v1/teams/shop/keys", json={"name": "app"}).raise_for_status()
    headers = {"Authorization": f"Bearer {made.json()['key']}"}
    for team, allowed in (("shop", True), ("bank", False)):
        url = f"{airflow}/dmls/api/v1/predictions/{team}/iris"
        answer = httpx.post(url, headers=headers, json={"rows": [{"a": 1}]})
        assert (answer.status_code not in (401, 403)) == allowed, answer.text


def test_approvers_are_ids_of_fab(client: Callable[[str], httpx.Client]) -> None:
    deploy = "/dmls/api/v1/jobs/shop/iris/deploy"
    refused = client("ali").post(deploy)
    assert refused.status_code == 403
    assert "your ID is 3" in refused.json()["detail"]
    assert client("ada").post(deploy).status_code != 403
    rights = {user: client(user).get("/dmls/api/v1/jobs/shop/iris").json()["may"] for user in ("ada", "ali")}
    assert rights["ada"] == {"deploy": True, "run": True, "change": True, "retire": True}
    assert rights["ali"] == rights["ada"] | {"deploy": False}


def test_airflow_accepts_an_answer_of_an_approver_alone(client: Callable[[str], httpx.Client]) -> None:
    answer = "/api/v2/dags/dmls.shop.iris/dagRuns/waiting/taskInstances/approve/-1/hitlDetails"
    body = {"chosen_options": ["Approve"], "params_input": {}}
    statuses = {
        user: client(user).patch(answer, json=body).status_code
        for user in ("bea", "tess", "vic", "nora", "ali", "root", "ada")
    }
    assert statuses.pop("ada") == 200
    assert set(statuses.values()) == {403}, "also of an administrator"


def test_a_login_leads_back_to_the_page_and_a_logout_ends_it(airflow: str) -> None:
    with httpx.Client(base_url=airflow, timeout=60) as browser:
        anonymous = browser.get("/dmls/jobs/shop/iris")
        assert anonymous.status_code == 303
        form = browser.get(anonymous.headers["location"])
        token = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', form.text)
        assert token
        entries = {"username": "ada", "password": "ada", "csrf_token": token[1]}
        signed_in = browser.post(anonymous.headers["location"], data=entries)
        assert signed_in.headers["location"] == f"{airflow}/dmls/jobs/shop/iris"
        assert browser.get("/dmls/jobs/shop/iris").status_code == 200
        assert browser.get("/dmls/jobs/bank/iris").status_code == 403
        session = browser.cookies["_token"]
        browser.get("/api/v2/auth/logout", follow_redirects=True)
        assert browser.get("/dmls/jobs/shop/iris").status_code == 303
    headers = {"Authorization": f"Bearer {session}"}
    assert httpx.get(f"{airflow}/dmls/api/v1/jobs", headers=headers).status_code == 403, "it was revoked"


def test_the_own_team_is_open_on_every_route(client: Callable[[str], httpx.Client]) -> None:
    """The last test: it retires the job."""
    decisions = ("/deploy", "/decline", "/rollback", "/undeploy")
    for user in ("ali", "bea"):
        answers = statuses(client(user), "shop" if user == "ali" else "bank")
        refused = {route for route, answer in answers.items() if answer.status_code == 403}
        assert refused == {route for route in answers if user == "ali" and route.endswith(decisions)}
        assert not {route: answer.text for route, answer in answers.items() if answer.status_code == 500}
