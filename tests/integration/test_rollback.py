"""MLflow's champion and Triton's version: they move together, and ``dmls doctor`` says where they part."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from dmls_core.cli.main import app
from dmls_core.devstack.doctor.services import check_served_versions
from dmls_core.monitoring.prometheus import JobMetricsCollector, exposition
from dmls_core.monitoring.reconcile import reconcile_all
from dmls_core.serving import Deployment, triton_servers
from dmls_core.serving.triton import startup
from dmls_core.settings import load_settings
from dmls_core.store import open_store, read_served
from dmls_core.tracking.registry import champions, find_champion, promote
from dmls_core.tracking.runs import log_run
from tests.support.table_endpoint import outputs_of, post
from tests.support.trained_run import spec_json, trained_run

JOB, NAME = "rolledback", "lab.rolledback"


@pytest.fixture
def served(triton, mlflow_uri, tmp_path, monkeypatch):
    """Two versions, each registered, deployed and made champion as a job's DAG does."""
    with triton.client() as client:
        variables = {
            "DMLS_TRITON_HTTP": client.addresses["http"],
            "DMLS_TRITON_GRPC": client.addresses["grpc"],
            "DMLS_TRITON_REPOSITORY": str(triton.repository.root),
            "MLFLOW_TRACKING_URI": mlflow_uri,
            "DMLS_HOME": str(tmp_path / "none"),
            "DMLS_ROOT": str(tmp_path / "root"),
        }
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        for number in (1, 2):
            folder = tmp_path / str(number)
            result = trained_run(folder, job=JOB, run_key=f"{number:016x}", seed=number)
            run = log_run(mlflow_uri, result, folder, spec=spec_json())

            def make_champion(version, _, run=run):
                promote(mlflow_uri, NAME, run.model_version, triton_version=version, deployed_by="a test")

            Deployment(triton.repository, client, NAME).deploy(folder / "model", finish=make_champion)
        yield client


def own_check():
    """Return what the doctor says of this model, or that all is well with every one."""
    checks = check_served_versions(load_settings())
    return next((check for check in checks if NAME in check.message), checks[0])


def metrics(tmp_path):
    """Return the metrics of this job."""
    return exposition(JobMetricsCollector(open_store(str(tmp_path / "root"))).collect())


def test_a_rollback_moves_triton_and_mlflow_together_and_fixes_differences(served, mlflow_uri, tmp_path):
    assert own_check().state == "ok" or NAME not in own_check().message
    done = CliRunner().invoke(app, ["rollback", f"lab/{JOB}", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["version"] == 1
    assert served.versions(NAME) == (1,)
    assert find_champion(mlflow_uri, NAME).version == 1
    assert f'dmls_rollbacks_total{{job="{JOB}",team="lab"}} 1.0\n' in metrics(tmp_path)

    served.unload(f"{NAME}.table")
    check = own_check()
    assert f"does not serve the table endpoint of {NAME}" in check.message
    assert f"dmls rollback lab/{JOB} --to 1" in check.hint
    assert CliRunner().invoke(app, ["rollback", f"lab/{JOB}", "--to", "1"]).exit_code == 0
    assert served.ready(f"{NAME}.table")

    promote(mlflow_uri, NAME, 2)  # by hand, on MLflow's page
    check = own_check()
    assert check.state == "broken"
    assert (
        f"MLflow's champion is version 2 in Triton, {served.addresses['http']} serves version 1"
        in check.message
    )
    assert f"dmls rollback lab/{JOB} --to 2" in check.hint
    assert CliRunner().invoke(app, ["rollback", f"lab/{JOB}", "--to", "2"]).exit_code == 0
    assert NAME not in own_check().message
    assert served.versions(NAME) == (2,)

    promote(mlflow_uri, NAME, 1)
    assert CliRunner().invoke(app, ["rollback", f"lab/{JOB}", "--to", "2"]).exit_code == 0, "the served one"
    assert find_champion(mlflow_uri, NAME).version == 2
    assert NAME not in own_check().message


def test_a_stopped_model_is_not_served_until_a_rollback(served, triton, mlflow_uri, tmp_path):
    store = open_store(str(tmp_path / "root"))
    deployment = Deployment(triton.repository, served, NAME)
    for _ in range(2):
        assert CliRunner().invoke(app, ["undeploy", f"lab/{JOB}"]).exit_code == 0
        assert served.versions(NAME) == served.versions(f"{NAME}.table") == ()
        assert champions(mlflow_uri).get(NAME) is None
        assert read_served(store, "lab", JOB) is None
        assert NAME not in startup.models_to_load(triton.repository)
        found = {NAME: champions(mlflow_uri).get(NAME)}
        assert reconcile_all(store, triton.repository, [served], lambda found=found: found).repaired == []
    assert CliRunner().invoke(app, ["rollback", f"lab/{JOB}"]).exit_code == 0
    assert served.versions(NAME) == (2,)
    assert served.versions(f"{NAME}.table"), "the table endpoint is loaded"
    assert find_champion(mlflow_uri, NAME).version == 2
    record = read_served(store, "lab", JOB)
    assert record is not None
    assert record.version == 2
    assert deployment.verify(2).rows > 0


def test_the_monitor_makes_triton_serve_the_champion_again(served, triton, mlflow_uri, tmp_path):
    store = open_store(str(tmp_path / "root"))

    def repairs():
        addresses = (served.addresses["http"], served.addresses["grpc"])
        with triton_servers(*addresses) as servers:
            result = reconcile_all(store, triton.repository, servers, lambda: champions(mlflow_uri))
        return [[line for line in lines if NAME in line] for lines in (result.repaired, result.failures)]

    assert repairs() == [[], []]
    promote(mlflow_uri, NAME, 1)  # by hand, on MLflow's page
    with triton.repository.lock(NAME):  # a deployment is in progress
        assert repairs() == [[], []]
    ((line,), _) = repairs()
    assert "served version 2" in line
    assert served.versions(NAME) == (1,)
    assert NAME not in own_check().message
    assert f'dmls_repairs_total{{job="{JOB}",team="lab"}} 1.0\n' in metrics(tmp_path)

    shutil.rmtree(triton.repository.root / NAME / "2")
    promote(mlflow_uri, NAME, 2)
    (_, (line,)) = repairs()
    assert "is version 2, which the repository does not hold" in line
    assert served.versions(NAME) == (1,)
    promote(mlflow_uri, NAME, 1)


def test_the_challenger_is_tried_by_command(served, mlflow_uri, tmp_path):
    folder, run_key = tmp_path / "3", f"{3:016x}"
    log_run(mlflow_uri, trained_run(folder, job=JOB, run_key=run_key, seed=3), folder, spec=spec_json())
    store = open_store(str(tmp_path / "root"))
    for file in (folder / "model").iterdir():
        store.upload(f"runs/lab/{JOB}/{run_key}/model/{file.name}", file)

    def answers():
        inputs = [
            {"name": "size", "datatype": "FP64", "shape": [1, 1], "data": [0.5]},
            {"name": "count", "datatype": "FP64", "shape": [1, 1], "data": [3]},
            {"name": "colour", "datatype": "BYTES", "shape": [1, 1], "data": ["red"]},
        ]
        status, answer = post(served.addresses["http"], f"{NAME}.table", {"inputs": inputs})
        assert status == 200
        return int(outputs_of(answer)["version"][0, 0])

    before = answers()
    done = CliRunner().invoke(app, ["canary", f"lab/{JOB}", "--share", "1", "--json"])
    assert done.exit_code == 0, done.output
    version = json.loads(done.stdout)["challenger"]
    assert answers() == version != before
    done = CliRunner().invoke(app, ["canary", f"lab/{JOB}", "--shadow"])
    assert f"version {version}, the challenger, is compared with the champion on 10%" in done.stdout
    assert answers() == before
    done = CliRunner().invoke(app, ["canary", f"lab/{JOB}", "--stop"])
    assert f"the champion answers all requests; the canary of version {version} has ended" in done.stdout
    assert answers() == before
    missing = CliRunner().invoke(app, ["canary", "lab/none"])
    assert missing.exit_code != 0
