"""Checks of the services in the settings, embedded or not."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from dmls_core.devstack.airflow import BUNDLE_CLASSPATH, STUDY_CONNECTION, pools
from dmls_core.devstack.airflow_client import AirflowClient, http_client
from dmls_core.devstack.context import Context, base_environment
from dmls_core.devstack.doctor.machine import Check
from dmls_core.devstack.postgres import STUDY
from dmls_core.devstack.private_files import read_json
from dmls_core.devstack.supervisor import http_text
from dmls_core.errors import DmlsError, PlatformError
from dmls_core.serving.triton.addresses import parse_address, split_addresses
from dmls_core.settings import CONNECTIONS, ENVIRONMENT, SIGNERS, SIGNING_KEY, Settings
from dmls_core.store import layout
from dmls_core.tracking.connection import server_version

_RUNNER_SECONDS = 60

SECONDS = 15.0
"""Longest wait for a service: while all checks run at once, a small machine is slow."""

_CHECK_IN_AIRFLOW = """
import json, os
from contextlib import suppress
from airflow.secrets.environment_variables import CONN_ENV_PREFIX as PREFIX
from airflow.utils.session import create_session
from sqlalchemy.exc import SQLAlchemyError
from dmls_core.airflow.database import connection_ids
from dmls_core.airflow.notifiers import unlisted_connections
from dmls_core.airflow.runners import load_runner
from dmls_core.airflow.settings import airflow_settings
runner = load_runner(airflow_settings())
ids = {name.removeprefix(PREFIX).lower() for name in os.environ if name.startswith(PREFIX)}
with suppress(SQLAlchemyError), create_session() as session:  # another check is about the database
    ids |= connection_ids(session)
print(json.dumps([runner.settings.runner, runner.check(), unlisted_connections(ids)]))
"""

_RESTART_HINT = "restart SeaweedFS, unless s3-guard does within a minute: it refuses some writes until then"

_CLOCK_TOLERANCE = timedelta(minutes=1)
"""Clocks of several machines differ by less."""

_INTAKE = "dmls.intake"
"""The DAG that the bundle always has."""

_WATCHING = (_INTAKE, "dmls.score", "dmls.repair")

_COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")


def service_checks(settings: Settings, embedded: Context | None = None) -> list[Callable[[], list[Check]]]:
    """Return the checks; each returns within seconds, even if its service hangs.

    Args:
        settings: the addresses of the services.
        embedded: the embedded platform, if they are its services. Its Airflow is asked with the variables of
            its own process; its REST API shows no connections, since they are variables.
    """
    environment = _airflow_environment(embedded) if embedded else os.environ
    return [
        *([lambda: [check_own_study(embedded)], lambda: check_in_airflow(embedded)] if embedded else []),
        lambda: _store(settings),
        lambda: [_mlflow(settings)],
        lambda: _tritons(settings),
        lambda: check_served_versions(settings),
        lambda: [check_processes(settings)],
        lambda: [check_signing(environment)],
        lambda: _airflow(settings, embedded=embedded is not None),
    ]


def _tritons(settings: Settings) -> list[Check]:
    try:
        addresses = split_addresses(settings.triton_http)
    except PlatformError as error:
        return [Check("triton", "broken", str(error), "correct the name, or start a server")]
    return [_triton(address) for address in addresses] or [_unset("triton", "triton_http")]


def _unset(name: str, setting: str) -> Check:
    hint = f"set {ENVIRONMENT[setting]}, or start the embedded platform with `dmls up`"
    return Check(name, "missing", "no address is set", hint)


def _store(settings: Settings) -> list[Check]:
    if not settings.root:
        return [_unset("store", "root")]
    from dmls_core.store import Registry, open_store
    from dmls_core.store.probe import FOLDERS, UNWRITABLE_HINT, refusals, write_read_delete

    try:
        store = open_store(settings.root)
        count = sum(1 for _ in store.list(layout.JOBS))
    except DmlsError as error:
        hint = "check the AWS_ variables: those of your shell win over the embedded platform's"
        return [Check("store", "broken", f"{settings.root}: {error}", hint)]
    try:
        write_read_delete(store)
    except DmlsError as error:
        message = f"{settings.root} is readable but not writable: {error}"
        return [Check("store", "broken", message, UNWRITABLE_HINT)]
    if refused := refusals(store):
        message = f"{settings.root}: {len(refused)} of {FOLDERS} folders refuse writes: {refused[0]}"
        return [Check("store", "broken", message, f"{UNWRITABLE_HINT}. Then {_RESTART_HINT}")]
    checks = [Check("store", "ok", f"{settings.root}, {count} jobs registered")]
    faults: dict[str, str] = {}
    try:
        Registry(store).jobs(faults=faults)
    except DmlsError as error:
        faults["registry"] = str(error)
    hint = "restore it from a backup, or delete it and run the DAG dmls.intake, which admits the spec again"
    return checks + [Check("registry", "broken", fault, hint) for fault in faults.values()]


def _mlflow(settings: Settings) -> Check:
    if not settings.mlflow_uri:
        return _unset("mlflow", "mlflow_uri")
    try:
        version = server_version(settings.mlflow_uri)
    except DmlsError as error:
        return Check("mlflow", "broken", str(error), "see logs/mlflow.log")
    return Check("mlflow", "ok", f"{version} at {settings.mlflow_uri}")


def _triton(address: str) -> Check:
    url = parse_address(address, "http").url
    metadata = http_text(f"{url}/v2", seconds=SECONDS)
    if metadata is None or http_text(f"{url}/v2/health/ready", seconds=SECONDS) is None:
        return Check("triton", "broken", f"{url} is not ready", "see logs/triton.log")
    server = json.loads(metadata)
    extensions = server.get("extensions", [])
    if "model_repository" not in extensions:
        return Check(
            "triton", "broken", f"{url} loads no models on request", "start it with explicit control"
        )
    if _anyone_may_load(url):
        return Check(
            "triton",
            "missing",
            f"{server.get('version')} at {url}: whoever reaches it may load models",
            "restrict its endpoints as docs/how-to/deploy.md shows, and set "
            f"{ENVIRONMENT['triton_key']} to the key",
        )
    return Check("triton", "ok", f"{server.get('version')} at {url}, loads models for the publisher alone")


def _anyone_may_load(url: str) -> bool:
    """Request the list of models, which has the same restriction as loading, without the key."""
    import httpx

    try:
        with http_client(url, 5) as client:
            return client.post(f"{url}/v2/repository/index").is_success
    except httpx.HTTPError:
        return False


def _airflow(settings: Settings, *, embedded: bool) -> list[Check]:
    if not settings.airflow_url:
        return [_unset("airflow", "airflow_url")]
    health = http_text(f"{settings.airflow_url.rstrip('/')}/api/v2/monitor/health", seconds=SECONDS)
    if health is None:
        return [
            Check("airflow", "broken", f"{settings.airflow_url} does not answer", "see logs/airflow-*.log")
        ]
    states = {name: (json.loads(health).get(name) or {}).get("status") for name in _COMPONENTS}
    ill = [name for name, state in states.items() if state != "healthy"]
    checks = [
        Check("airflow", "broken", f"not healthy: {', '.join(ill)}", "see logs/airflow-*.log")
        if ill
        else Check("airflow", "ok", f"{', '.join(_COMPONENTS)} healthy at {settings.airflow_url}")
    ]
    try:
        rest = AirflowClient(settings.airflow_url, settings.airflow_username, settings.airflow_password)
        checks += [_bundle(rest), _watchers(rest), _dates(rest), *(_pool(rest, name) for name in pools())]
        return checks if embedded else [*checks, _check_study_connection(rest)]
    except DmlsError as error:
        hint = "check DMLS_AIRFLOW_USERNAME and DMLS_AIRFLOW_PASSWORD"
        return [*checks, Check("airflow login", "broken", str(error), hint)]


def _bundle(rest: AirflowClient) -> Check:
    """Check that Airflow has the intake DAG, which shows that the bundle's entry and connection work."""
    dag = rest.get(f"/api/v2/dags/{_INTAKE}")
    if dag is not None and not dag.get("is_stale", False):
        return Check("airflow bundle", "ok", f"bundle {dag.get('bundle_name')!r} brings {_INTAKE}")
    return Check(
        "airflow bundle",
        "broken",
        f"Airflow has no DAG {_INTAKE}",
        f"give [dag_processor] dag_bundle_config_list an entry with classpath {BUNDLE_CLASSPATH}, and check "
        "the connection that it names: the DAG processor's log says what it lacks",
    )


def _watchers(rest: AirflowClient) -> Check:
    """Check that Airflow watches what starts the DAGs of the bundle that wait for events."""
    query = "&".join(f"dag_ids={dag_id}" for dag_id in _WATCHING)
    watchers = {_INTAKE: 0} | {
        dag["dag_id"]: len(asset["watchers"])
        for asset in rest.call("GET", f"/api/v2/assets?{query}")["assets"]
        for dag in asset["scheduled_dags"]
    }
    if unwatched := [dag_id for dag_id, number in watchers.items() if not number]:
        return Check(
            "airflow watchers",
            "broken",
            f"no submission or other event starts {', '.join(sorted(unwatched))}: the watcher is gone",
            "unpause the DAG, if it is paused; the DAG processor restores the watcher within a minute; if it "
            "does not, its log says why",
        )
    return Check("airflow watchers", "ok", f"{sum(watchers.values())} watchers start {', '.join(watchers)}")


def _dates(rest: AirflowClient) -> Check:
    """Check that no run that Airflow has created is dated in the future, as after a clock was set back."""
    limit = (datetime.now(UTC) + _CLOCK_TOLERANCE).strftime("%Y-%m-%dT%H:%M:%SZ")
    unfinished = "state=queued&state=running&run_type=scheduled&run_type=asset_triggered"
    waiting = set()
    for date in ("run_after", "logical_date"):
        page = rest.get(f"/api/v2/dags/~/dagRuns?{unfinished}&{date}_gt={limit}")
        waiting |= {run["dag_id"] for run in page["dag_runs"]}
    if waiting:
        return Check(
            "airflow dates",
            "broken",
            f"the clock was set back: runs of {', '.join(sorted(waiting))} are dated in the future, and wait",
            "wait until then, or submit these jobs under other names",
        )
    return Check("airflow dates", "ok", "no run is dated in the future")


def _pool(rest: AirflowClient, name: str) -> Check:
    title = f"airflow pool {name}"
    pool = rest.get(f"/api/v2/pools/{name}")
    slots = pool["slots"] if pool else pools()[name]
    command = f"airflow pools set {name} {slots} 'DMLS trainers' --include-deferred"
    if pool is None:
        return Check(title, "broken", "there is none", f"{command}: without it tasks never start")
    if not pool["include_deferred"]:
        return Check(title, "broken", "it does not limit how many trainers run", command)
    return Check(title, "ok", f"{slots} slots")


SERVED = "served versions"


def check_served_versions(settings: Settings) -> list[Check]:
    """Compare the champions in MLflow with the versions that each Triton server serves."""
    if not (settings.mlflow_uri and settings.triton_http and settings.triton_grpc):
        return []
    from dmls_core.serving import triton_servers
    from dmls_core.serving.triton.model_config import table_name
    from dmls_core.serving.triton.placement import select_servers
    from dmls_core.tracking.registry import champions

    faults = []
    try:
        champion_versions = champions(settings.mlflow_uri)
        with triton_servers(settings.triton_http, settings.triton_grpc) as servers:
            for model, version in champion_versions.items():
                if version is None:
                    continue
                for client in select_servers(servers, model):
                    address = client.addresses["http"]
                    if (served := client.versions(model)) != (version,):
                        faults.append(_disagreement(address, model, version, served))
                    elif not client.ready(table_name(model)):
                        faults.append(_no_table(address, model, version))
    except DmlsError as error:
        return [Check(SERVED, "broken", str(error), "fix MLflow and Triton first")]
    return faults or [
        Check(SERVED, "ok", f"Triton serves the champion of each of {len(champion_versions)} models")
    ]


def check_processes(settings: Settings) -> Check:
    """Return which processes of Triton ended within a day, and what became of them."""
    title = "triton processes"
    if not settings.root:
        return _unset(title, "root")
    from dmls_core.store import all_process_failures, open_store

    try:
        failures = [
            failure
            for _, record in all_process_failures(open_store(settings.root))
            for failure in record.recent()
        ]
    except DmlsError as error:
        return Check(title, "broken", str(error), "fix the store first")
    if ended := [failure.text for failure in failures if not failure.reloaded]:
        hint = "DMLS reloads them; if it could not, see Triton's log, roll back, or deploy another version"
        return Check(title, "broken", "; ".join(ended), hint)
    if failures:
        latest = max(failures, key=lambda failure: failure.noticed)
        return Check(
            title, "ok", f"{len(failures)} ended within a day and were reloaded. Latest: {latest.text}"
        )
    return Check(title, "ok", "none ended within a day")


def _disagreement(address: str, model: str, version: int, served: tuple[int, ...]) -> Check:
    job = model.replace(".", "/", 1)
    now = f"version {served[0]}" if served else "no version"
    hint = f"`dmls rollback {job} --to {version}` has Triton serve the champion"
    if served:
        hint += f"; `dmls rollback {job} --to {served[0]}` makes what is served the champion"
    return Check(
        SERVED,
        "broken",
        f"{model}: MLflow's champion is version {version} in Triton, {address} serves {now}",
        hint,
    )


def _no_table(address: str, model: str, version: int) -> Check:
    job = model.replace(".", "/", 1)
    hint = f"`dmls rollback {job} --to {version}` loads it"
    return Check(SERVED, "broken", f"{address} does not serve the table endpoint of {model}", hint)


def check_signing(environment: Mapping[str, str]) -> Check:
    """Check that models must be signed, and that the key that signs, if it is known here, is accepted."""
    from dmls_core.serving.deployment.signature import public_key, public_keys

    key, signers, name = environment.get(SIGNING_KEY), environment.get(SIGNERS), "signed models"
    try:
        accepted = public_keys(signers) if signers else []
        if key and public_key(key) not in accepted:
            hint = f"add its public key to {SIGNERS}: `openssl ec -in KEY -pubout`"
            return Check(name, "broken", f"models are signed with a key that is not in {SIGNERS}", hint)
    except ValueError as error:
        return Check(name, "broken", f"a key cannot be read: {error}", f"set {SIGNING_KEY} and {SIGNERS}")
    if accepted:
        return Check(name, "ok", f"only models that a trainer signed are deployed ({SIGNERS})")
    message = "whoever can write Triton's repository can have another model served"
    return Check(name, "missing", message, f"set {SIGNING_KEY} and {SIGNERS} for Airflow")


_STUDY_CHECK = f"connection {STUDY_CONNECTION}"
_CONNECT_SECONDS = 5
_POSTGRES_PORT = 5432
"""PostgreSQL's default, for connections without a port."""

_ADD_CONNECTION = (
    f"airflow connections add {STUDY_CONNECTION} --conn-type postgres --conn-host HOST --conn-port 5432 "
    "--conn-login USER --conn-password PASSWORD --conn-schema DATABASE"
)


def check_own_study(context: Context) -> Check:
    """Check that Optuna can create tables in the embedded platform's database."""
    import psycopg

    where = f"PostgreSQL at {context.address('postgres')}"
    host, _, port = context.address("postgres").rpartition(":")
    password = context.secret(f"{STUDY}_db_password")
    try:
        with psycopg.connect(
            host=host,
            port=port,
            user=STUDY,
            password=password,
            dbname=STUDY,
            connect_timeout=_CONNECT_SECONDS,
        ) as connection:
            row = connection.execute("SELECT has_schema_privilege('public', 'CREATE')").fetchone()
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        hint = "`dmls up` makes it; see logs/postgres.log"
        return Check(_STUDY_CHECK, "broken", f"{where} refuses {STUDY}: {reason}", hint)
    if row != (True,):
        hint = f"GRANT CREATE ON SCHEMA public TO {STUDY}"
        return Check(_STUDY_CHECK, "broken", f"{where}: {STUDY} may create no tables", hint)
    return Check(_STUDY_CHECK, "ok", f"{where}: trainers may share a search")


def check_in_airflow(context: Context) -> list[Check]:
    """Check the runner and the notifiers of the embedded platform in a process of its Airflow."""
    environment = {**base_environment(context), **_airflow_environment(context)}
    command = [sys.executable, "-P", "-c", _CHECK_IN_AIRFLOW]
    try:
        done = subprocess.run(
            command, check=True, env=environment, capture_output=True, text=True, timeout=_RUNNER_SECONDS
        )
        name, lacking, unlisted = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().rpartition("\n")[2][:500]
        hint = "see logs/airflow-scheduler.log"
        return [Check("runner", "broken", f"it cannot be checked: {reason}", hint)]
    checks = [Check("runner", "ok", f"{name} can start trainers")]
    if lacking:
        hint = "no search starts until this is fixed"
        checks = [Check("runner", "broken", f"{name}: {'; '.join(lacking)}", hint)]
    if unlisted:
        message = f"no team may use {', '.join(unlisted)}: nothing is sent there"
        hint = f"add them with their teams to {CONNECTIONS}, then run `dmls up`"
        checks.append(Check("notifiers", "missing", message, hint))
    return checks


def _airflow_environment(context: Context) -> dict[str, str]:
    """Return the variables with which the embedded Airflow was started."""
    service = read_json(context.state / "services" / "airflow-scheduler.json") or {}
    environment: dict[str, str] = service.get("environment", {})
    return environment


def _check_study_connection(rest: AirflowClient) -> Check:
    """Check that Airflow has the connection to the database, and that its address accepts connections."""
    connection: dict[str, Any] | None = rest.get(f"/api/v2/connections/{STUDY_CONNECTION}")
    if connection is None:
        return Check(
            _STUDY_CHECK,
            "missing",
            "Airflow shows none (it does not show those from variables or secrets backends): specs with "
            "[search] workers above 1 are refused",
            _ADD_CONNECTION,
        )
    if connection.get("conn_type") != "postgres":
        return Check(
            _STUDY_CHECK,
            "broken",
            f"it is of type {connection.get('conn_type')!r}",
            f"use type postgres: {_ADD_CONNECTION}",
        )
    host, port = str(connection.get("host") or ""), int(connection.get("port") or _POSTGRES_PORT)
    if not host or host.startswith("/"):
        message = "it names a folder of sockets" if host else "it names no host"
        return Check(
            _STUDY_CHECK,
            "missing",
            f"{message}: trainers in containers cannot reach that",
            "set its host to an address",
        )
    try:
        socket.create_connection((host, port), _CONNECT_SECONDS).close()
    except OSError as error:
        return Check(
            _STUDY_CHECK,
            "broken",
            f"nothing answers at {host}:{port} from here: {error}",
            "check its host and port, and that trainers reach them: in a container, localhost is itself",
        )
    return Check(_STUDY_CHECK, "ok", f"{host}:{port} answers")
