"""MLflow's champion and Triton's version: they move together, and ``dmls doctor`` says where they part."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dmls_core.cli.main import app
from dmls_core.platform.doctor.deployed import check_served_versions
from dmls_core.serving import deploy
from dmls_core.settings import load_settings
from dmls_core.tracking import champion, log_run, promote
from tests.trained_run import spec_json, trained_run

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
        }
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        for number in (1, 2):
            folder = tmp_path / str(number)
            result = trained_run(folder, job=JOB, run_key=f"{number:016x}", seed=number)
            run = log_run(mlflow_uri, result, folder, spec=spec_json())

            def make_champion(version, _, run=run):
                promote(mlflow_uri, NAME, run.model_version, triton_version=version, deployed_by="a test")

            deploy(triton.repository, client, NAME, folder / "model", finish=make_champion)
        yield client


def own_check():
    """Return what the doctor says of this model, or that all is well with every one."""
    checks = check_served_versions(load_settings())
    return next((check for check in checks if NAME in check.message), checks[0])


def test_triton_and_mlflow_go_back_together_and_drift_is_mended(served, mlflow_uri):
    assert own_check().state == "ok" or NAME not in own_check().message
    done = CliRunner().invoke(app, ["rollback", f"lab/{JOB}", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["version"] == 1
    assert served.versions(NAME) == served.versions(f"{NAME}.table") == (1,)
    assert champion(mlflow_uri, NAME) == 1

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
    assert champion(mlflow_uri, NAME) == 2
    assert NAME not in own_check().message
