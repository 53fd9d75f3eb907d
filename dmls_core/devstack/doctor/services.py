"""Checks of the services that the settings name: the embedded platform's, or any others."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Callable

from dmls_core.devstack.airflow import BUNDLE_CLASSPATH, pools
from dmls_core.devstack.airflow_rest import AirflowRest
from dmls_core.devstack.doctor.check import Check
from dmls_core.devstack.doctor.deployed import check_served_versions
from dmls_core.devstack.doctor.study import check_study_connection
from dmls_core.devstack.service import http_text
from dmls_core.errors import DmlsError
from dmls_core.serving.client import split_addresses
from dmls_core.settings import ENVIRONMENT, TRITON_KEY_HEADER, Settings

INTAKE = "dmls.intake"
"""The DAG that the bundle always has."""

COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")


def service_checks(settings: Settings, *, embedded: bool = False) -> list[Callable[[], list[Check]]]:
    """Return the checks; each returns within seconds, whatever the services do.

    Args:
        settings: where the services are.
        embedded: whether Airflow is the embedded platform's, whose connections are variables: it shows none.
    """
    return [
        lambda: [_store(settings)],
        lambda: [_mlflow(settings)],
        lambda: (
            [_triton(address) for address in split_addresses(settings.triton_http)]
            or [_unset("triton", "triton_http")]
        ),
        lambda: check_served_versions(settings),
        lambda: _airflow(settings, embedded=embedded),
    ]


def _unset(name: str, setting: str) -> Check:
    hint = f"set {ENVIRONMENT[setting]}, or start the embedded platform with `dmls up`"
    return Check(name, "missing", "no address is set", hint)


def _store(settings: Settings) -> Check:
    if not settings.root:
        return _unset("store", "root")
    from dmls_core.store import open_store

    try:
        found = len(list(itertools.islice(open_store(settings.root).list("registry/jobs/"), 1000)))
    except DmlsError as error:
        return Check(
            "store",
            "broken",
            f"{settings.root}: {error}",
            "check the AWS_ variables: those of your shell win over the embedded platform's",
        )
    return Check("store", "ok", f"{settings.root}, {found} jobs registered")


def _mlflow(settings: Settings) -> Check:
    if not settings.mlflow_uri:
        return _unset("mlflow", "mlflow_uri")
    version = http_text(f"{settings.mlflow_uri.rstrip('/')}/version")
    if version is None:
        return Check("mlflow", "broken", f"{settings.mlflow_uri} does not answer", "see logs/mlflow.log")
    return Check("mlflow", "ok", f"{version.strip()} at {settings.mlflow_uri}")


def _triton(address: str) -> Check:
    url = f"http://{address}"
    metadata = http_text(f"{url}/v2")
    if metadata is None or http_text(f"{url}/v2/health/ready") is None:
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
            f"start it with --http-restricted-api=model-repository:{TRITON_KEY_HEADER}=KEY and "
            f"--grpc-restricted-protocol with the same, and set {ENVIRONMENT['triton_key']}=KEY",
        )
    return Check("triton", "ok", f"{server.get('version')} at {url}, loads models for the publisher alone")


def _anyone_may_load(url: str) -> bool:
    """Ask for the list of models, which the same restriction covers, without the key."""
    request = urllib.request.Request(f"{url}/v2/repository/index", method="POST")  # noqa: S310  it is HTTP
    try:
        urllib.request.urlopen(request, timeout=5).close()  # noqa: S310
    except OSError:  # an answer of 403 is one as well
        return False
    return True


def _airflow(settings: Settings, *, embedded: bool) -> list[Check]:
    if not settings.airflow_url:
        return [_unset("airflow", "airflow_url")]
    health = http_text(f"{settings.airflow_url.rstrip('/')}/api/v2/monitor/health")
    if health is None:
        return [
            Check("airflow", "broken", f"{settings.airflow_url} does not answer", "see logs/airflow-*.log")
        ]
    states = {name: (json.loads(health).get(name) or {}).get("status") for name in COMPONENTS}
    ill = [name for name, state in states.items() if state != "healthy"]
    checks = [
        Check("airflow", "broken", f"not healthy: {', '.join(ill)}", "see logs/airflow-*.log")
        if ill
        else Check("airflow", "ok", f"{', '.join(COMPONENTS)} healthy at {settings.airflow_url}")
    ]
    try:
        rest = AirflowRest(settings.airflow_url, settings.airflow_username, settings.airflow_password)
        checks += [_bundle(rest), *(_pool(rest, name) for name in pools())]
        return checks if embedded else [*checks, check_study_connection(rest)]
    except DmlsError as error:
        hint = "check DMLS_AIRFLOW_USERNAME and DMLS_AIRFLOW_PASSWORD"
        return [*checks, Check("airflow login", "broken", str(error), hint)]


def _bundle(rest: AirflowRest) -> Check:
    """Check that Airflow has the intake DAG: then the bundle's entry is there and its connection works."""
    dag = rest.get(f"/api/v2/dags/{INTAKE}")
    if dag is not None and not dag.get("is_stale", False):
        return Check("airflow bundle", "ok", f"bundle {dag.get('bundle_name')!r} brings {INTAKE}")
    return Check(
        "airflow bundle",
        "broken",
        f"Airflow has no DAG {INTAKE}",
        f"give [dag_processor] dag_bundle_config_list an entry with classpath {BUNDLE_CLASSPATH}, and check "
        "the connection that it names: the DAG processor's log says what it lacks",
    )


def _pool(rest: AirflowRest, name: str) -> Check:
    pool = rest.get(f"/api/v2/pools/{name}")
    if pool is None:
        hint = f"airflow pools set {name} {pools()[name]} 'DMLS trainers': without it tasks wait for ever"
        return Check(f"airflow pool {name}", "broken", "there is none", hint)
    return Check(f"airflow pool {name}", "ok", f"{pool['slots']} slots")
