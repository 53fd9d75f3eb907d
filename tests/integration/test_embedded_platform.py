"""The embedded platform with all its real services: started, asked, hardened, started again."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import psutil
import pytest
from botocore.exceptions import ClientError

from dmls_core.devstack.airflow_client import AirflowClient
from dmls_core.devstack.context import Context, load_identity
from dmls_core.devstack.doctor import examine
from dmls_core.devstack.platform import Platform
from dmls_core.devstack.postgres import database_url, superuser
from dmls_core.devstack.supervisor import http_answers, http_text, wait_until
from dmls_core.errors import PlatformError
from tests.services.platform_home import PlatformHome

SERVICES = {
    "s3",
    "s3-guard",
    "postgres",
    "mlflow",
    "triton",
    "airflow-api-server",
    "airflow-scheduler",
    "airflow-triggerer",
    "airflow-dag-processor",
}


@pytest.fixture(autouse=True)
def settings_of_the_platform(home: PlatformHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_HOME", str(home.folder))
    for name, value in home.state["environment"].items():
        monkeypatch.setenv(name, value)


def context(home: PlatformHome) -> Context:
    return Context(home.folder, load_identity(home.folder / "identity.json"))


def s3(home: PlatformHome, **changed: str) -> Any:
    env = home.state["environment"]
    keys = {
        "aws_access_key_id": env["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": env["AWS_SECRET_ACCESS_KEY"],
    }
    return boto3.client(
        "s3", endpoint_url=env["AWS_ENDPOINT_URL"], region_name=env["AWS_DEFAULT_REGION"], **(keys | changed)
    )


def http_status(url: str, method: str = "GET") -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_every_service_runs_and_the_doctor_finds_nothing_broken(home: PlatformHome):
    state = home.platform.status()
    assert state.up
    assert {service.name for service in state.services} == SERVICES
    checks = examine(home.platform)
    assert not [check for check in checks if check.state == "broken"]
    assert {"store", "mlflow", "triton", "airflow", "airflow bundle", "runner"} <= {
        c.name for c in checks if c.state == "ok"
    }


def test_up_again_says_so_and_restarts_nothing(home: PlatformHome):
    pids = {service.name: service.pid for service in home.platform.status().services}
    reported: list[tuple[str, str]] = []
    state = home.platform.up(lambda name, what, _: reported.append((name, what)))
    assert {service.name: service.pid for service in state.services} == pids
    assert {name for name, what in reported if what == "ready"} >= SERVICES


def test_all_listen_on_loopback_alone(home: PlatformHome):
    listening = [
        (marked.service, connection.laddr)
        for marked in home.processes()
        for connection in marked.process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {service for service, _ in listening} == {
        "s3",
        "postgres",
        "mlflow",
        "triton",
        "airflow-api-server",
    }
    assert {address.ip.removeprefix("::ffff:") for _, address in listening} == {"127.0.0.1"}
    assert {address.port for _, address in listening} == set(home.identity["ports"].values())


def test_secrets_are_in_private_files_and_in_no_argument_or_log(home: PlatformHome):
    secrets = {n: s for n, s in home.identity["credentials"].items() if n != "s3_access_key"}
    lines = [" ".join(marked.process.cmdline()) for marked in home.processes()]
    logs = [file.read_text(errors="replace") for file in (home.folder / "logs").rglob("*.log")]
    assert len(logs) > 8
    for name, secret in secrets.items():
        assert not [line for line in lines if secret in line], name
        assert not [log for log in logs if secret in log], name
    for file in (
        "identity.json",
        "platform.json",
        "supervisord.conf",
        "airflow/passwords.json",
        "services/s3.json",
    ):
        assert stat.S_IMODE((home.folder / file).stat().st_mode) == 0o600, file
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(home.identity["runtime"]).stat().st_mode) == 0o700


def test_s3_wants_its_credentials_and_is_the_only_way_in(home: PlatformHome):
    client = s3(home)
    client.put_object(Bucket="dmls", Key="x/y", Body=b"1", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put_object(Bucket="dmls", Key="x/y", Body=b"2", IfNoneMatch="*")
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        s3(home, aws_secret_access_key="guess").get_object(Bucket="dmls", Key="x/y")
    with pytest.raises(ClientError, match="InvalidAccessKeyId"):
        s3(home, aws_access_key_id="guess").list_buckets()
    ports = home.identity["ports"]
    assert http_status(f"http://127.0.0.1:{ports['s3']}/dmls/x/y") == 403
    assert http_status(f"http://127.0.0.1:{ports['filer']}/buckets/dmls/x/y") == 404
    assert http_status(f"http://127.0.0.1:{ports['master']}/dir/assign") == 404
    assert http_status(f"http://127.0.0.1:{ports['master']}/col/delete?collection=dmls", "POST") == 404
    assert client.get_object(Bucket="dmls", Key="x/y")["Body"].read() == b"1"


def test_postgres_has_two_databases_with_owners_and_passwords(home: PlatformHome):
    import psycopg

    place = context(home)
    for name in ("airflow", "mlflow"):
        url = database_url(place, name, "psycopg").replace("+psycopg", "")
        with closing(psycopg.connect(url, connect_timeout=60)) as connection:
            assert connection.execute("SELECT current_user, count(*) > 10 FROM pg_tables").fetchone() == (
                name,
                True,
            )
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(re.sub(r":[^:@]+@", ":guess@", url), connect_timeout=60)
    with superuser(place) as connection:
        assert connection.execute("SHOW server_version_num").fetchone()[0].startswith("18")
    (server,) = [m.process for m in home.processes("postgres") if m.process.pid == home.main_pid("postgres")]
    assert server.uids().effective != 0


def test_mlflow_keeps_runs_in_postgres_and_artifacts_in_s3(home: PlatformHome, tmp_path: Path):
    from mlflow import MlflowClient

    client = MlflowClient(home.state["settings"]["mlflow_uri"])
    run = client.create_run(client.create_experiment("platform")).info
    client.log_metric(run.run_id, "score", 0.5)
    (tmp_path / "note.txt").write_text("kept in S3")
    client.log_artifact(run.run_id, str(tmp_path / "note.txt"))
    assert client.get_run(run.run_id).data.metrics == {"score": 0.5}
    assert run.artifact_uri.startswith("mlflow-artifacts:")
    keys = [o["Key"] for o in s3(home).list_objects_v2(Bucket="dmls", Prefix="mlflow/")["Contents"]]
    assert [key for key in keys if key.endswith(f"{run.run_id}/artifacts/note.txt")]


def test_airflow_lets_in_its_admin_and_nobody_else_and_has_its_pools(home: PlatformHome):
    settings = home.state["settings"]
    rest = AirflowClient(settings["airflow_url"], settings["airflow_username"], settings["airflow_password"])
    assert rest.get("/api/v2/pools/dmls_cpu")["slots"] >= 1
    assert rest.get("/api/v2/pools/dmls_gpu")["slots"] >= 0
    assert rest.get("/api/v2/pools/none") is None
    assert http_status(f"{settings['airflow_url']}/api/v2/pools") == 401
    with pytest.raises(PlatformError, match="401"):
        AirflowClient(settings["airflow_url"], settings["airflow_username"], "guess")


def test_a_pool_that_somebody_sized_stays_so(home: PlatformHome):
    settings = home.state["settings"]
    rest = AirflowClient(settings["airflow_url"], settings["airflow_username"], settings["airflow_password"])
    wanted = {"pool": "dmls_cpu", "slots": 7, "include_deferred": False}
    rest.call("PATCH", "/api/v2/pools/dmls_cpu?update_mask=slots&update_mask=include_deferred", wanted)
    home.platform.up()
    pool = rest.get("/api/v2/pools/dmls_cpu")
    assert (pool["slots"], pool["include_deferred"]) == (7, True)


CONFIG = """
name: "%s"
backend: "fil"
max_batch_size: 1000
input [ { name: "input__0" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "output__0" data_type: TYPE_FP32 dims: [ %d ] } ]
instance_group [ { kind: KIND_AUTO } ]
parameters [
  { key: "model_type" value: { string_value: "treelite_checkpoint" } },
  { key: "predict_proba" value: { string_value: "true" } },
  { key: "output_class" value: { string_value: "true" } },
  { key: "is_classifier" value: { string_value: "true" } },
  { key: "threshold" value: { string_value: "0.5" } }
]
"""


def test_triton_serves_a_forest_by_the_stand_in_over_both_protocols(home: PlatformHome):
    import treelite
    import tritonclient.grpc
    import tritonclient.http
    from sklearn.ensemble import RandomForestClassifier

    rows = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    forest = RandomForestClassifier(20, random_state=0).fit(rows, (rows[:, :2] > 0).sum(axis=1))
    settings = home.state["settings"]
    repository = Path(settings["triton_repository"])
    for name, outputs in (("good", 3), ("bad", 2)):
        (repository / name / "1").mkdir(parents=True)
        treelite.sklearn.import_model(forest).serialize(repository / name / "1" / "checkpoint.tl")
        (repository / name / "config.pbtxt").write_text(CONFIG % (name, outputs))
    for module, address, header in (
        (tritonclient.http, settings["triton_http"], "dmls-key"),
        (tritonclient.grpc, settings["triton_grpc"], "triton-grpc-protocol-dmls-key"),
    ):
        key = {header: settings["triton_key"]}
        with closing(module.InferenceServerClient(address)) as client:
            for refused in (
                lambda: client.load_model("good"),
                client.get_model_repository_index,
                client.get_system_shared_memory_status,
                lambda: client.update_log_settings({"log_verbose_level": 1}),
                lambda: client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}),
            ):
                with pytest.raises(Exception, match="restricted"):
                    refused()
            with pytest.raises(Exception, match="output__0 has dims"):
                client.load_model("bad", headers=key)
            assert client.is_server_ready(), "one bad model leaves the server ready"
            client.load_model("good", headers=key)
            given = module.InferInput("input__0", list(rows.shape), "FP32")
            given.set_data_from_numpy(rows)
            answer = client.infer("good", [given]).as_numpy("output__0")
        np.testing.assert_allclose(answer, forest.predict_proba(rows), atol=1e-6)
    regions = list(Path("/dev/shm").glob(f"dmls-{home.identity['id']}-*"))
    assert {stat.S_IMODE(region.stat().st_mode) for region in regions} == {0o600}
    assert "nv_inference_count" in http_text(
        f"http://127.0.0.1:{home.identity['ports']['triton_metrics']}/metrics"
    )
    good = f"http://{settings['triton_http']}/v2/models/good/ready"
    killed = next(service.pid for service in home.platform.status().services if service.name == "triton")
    psutil.Process(killed).kill()
    wait_until(lambda: not psutil.pid_exists(killed) and http_answers(good), 60)
    assert not [region for region in regions if region.exists()], "the next server removes what is left"


def test_what_changed_is_started_anew_and_nothing_else(home: PlatformHome):
    before = {service.name: service.pid for service in home.platform.status().services}
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    after = {s.name: s.pid for s in Platform(home.folder, ports={"triton_metrics": port}).up().services}
    assert {name for name in SERVICES if before[name] != after[name]} == {"triton"}
    assert http_status(f"http://127.0.0.1:{port}/metrics") == 200


def services_in(home: PlatformHome, state: str) -> set[str]:
    return {service.name for service in home.platform.status().services if service.state == state}


def test_a_service_that_does_not_start_is_named_with_its_log(
    home: PlatformHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = tmp_path / "triton" / "bin" / "tritonserver"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho no such device\nexit 1\n")
    program.chmod(0o755)
    (tmp_path / "triton" / "backends" / "fil").mkdir(parents=True)
    (tmp_path / "triton" / "backends" / "fil" / "libtriton_fil.so").touch()
    monkeypatch.setenv("DMLS_TRITON_SERVER", str(program))
    with pytest.raises(PlatformError) as caught:
        home.platform.up()
    message = str(caught.value)
    assert "triton did not start" in message
    assert "no such device" in message
    assert str(home.folder / "logs" / "triton.log") in message
    # supervisord starts it again and again, and a start that takes a second looks like a running service.
    wait_until(lambda: services_in(home, "RUNNING") == SERVICES - {"triton"}, 120)
    broken = ("service triton", "broken")
    wait_until(lambda: broken in {(check.name, check.state) for check in examine(home.platform)}, 120)

    monkeypatch.delenv("DMLS_TRITON_SERVER")
    assert home.platform.up().up


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program as another user")
def test_another_user_of_the_machine_can_do_nothing(home: PlatformHome):
    ports = {name: f"127.0.0.1:{port}" for name, port in home.identity["ports"].items()}
    urls = {name: f"http://{ports[name]}" for name in ("s3", "mlflow", "airflow")}
    folders = [str(home.folder), home.identity["runtime"], str(home.folder / "logs")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.other_user", json.dumps(ports | urls), json.dumps(folders)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["succeeded"] == {}
    refusals = "40[134]|restricted|no password|UNAVAILABLE|Permission denied"
    assert not {name: why for name, why in found["refused"].items() if not re.search(refusals, why)}
    assert "tritonserver" in found["processes"]
    assert not [name for name, secret in home.identity["credentials"].items() if secret in found["processes"]]
