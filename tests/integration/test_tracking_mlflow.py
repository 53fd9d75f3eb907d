"""Runs, trials, models and aliases in a real MLflow server."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dmls_core.errors import NotFoundError, PlatformError, TrackingError
from dmls_core.evaluate.comparison import compare
from dmls_core.tracking.registry import (
    RegisteredVersion,
    champion_of,
    champions,
    find_champion,
    promote,
    registered_as,
)
from dmls_core.tracking.runs import COMPARED, log_run
from tests.services.seaweed import free_ports
from tests.support.trained_run import spec_json, trained_run, user_rows

jobs = (f"parts{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def forgotten_address() -> Iterator[None]:
    """`mlflow.set_tracking_uri` leaves its address in the environment, where later tests would find it."""
    yield
    os.environ.pop("MLFLOW_TRACKING_URI", None)


@pytest.fixture
def job() -> str:
    return next(jobs)


@pytest.fixture
def client(mlflow_uri):
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=mlflow_uri, registry_uri=mlflow_uri)


@pytest.fixture
def requests(mlflow_uri, monkeypatch) -> Counter[str]:
    """Counts requests to MLflow by method and resource."""
    import requests

    counted: Counter[str] = Counter()
    send = requests.Session.request

    def request(self, method, url, *args, **options):
        if url.startswith(mlflow_uri):  # threads of earlier tests may talk to a Docker engine
            counted[f"{method} {url.split('/api/')[-1].split('?')[0]}"] += 1
        return send(self, method, url, *args, **options)

    monkeypatch.setattr(requests.Session, "request", request)
    return counted


def log(uri, result, folder, **options):
    return log_run(uri, result, folder, spec=spec_json(), **options)


def children(client, run):
    parent = client.get_run(run.run_id)
    found = client.search_runs(
        [parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{run.run_id}'", max_results=1000
    )
    return sorted(found, key=lambda child: int(child.data.tags["dmls.trial"]))


def test_a_run_is_recorded_whole(mlflow_uri, client, tmp_path, job):
    result = trained_run(tmp_path / "run", job=job)
    before = 1000 * time.time()
    run = log(
        mlflow_uri, result, tmp_path / "run", airflow_url="http://airflow/run/1", public_uri="http://ml/"
    )
    found = client.get_run(run.run_id)
    experiment = client.get_experiment_by_name(f"dmls/lab/{job}")
    assert run.url == f"http://ml/#/experiments/{experiment.experiment_id}/runs/{run.run_id}"
    assert found.info.experiment_id == experiment.experiment_id
    assert found.info.status == "FINISHED"
    assert found.info.run_name == result["run_key"]
    assert found.info.end_time - found.info.start_time == 3000
    assert before - 4000 < found.info.start_time < before
    assert found.data.params == {"n_estimators": "10", "max_depth": "None", "criterion": "gini"}
    expected = {
        "accuracy": 0.9,
        "score": 0.9,
        "cv_score": 0.88,
        "n_trials": 3.0,
        "log_loss": 0.3,
        "seconds.total": 3.0,
    }
    assert found.data.metrics.items() >= expected.items()
    tags = {key: value for key, value in found.data.tags.items() if key.startswith("dmls.")}
    assert tags == {
        "dmls.run_key": result["run_key"],
        "dmls.team": "lab",
        "dmls.job": job,
        "dmls.model": "random-forest-classifier",
        "dmls.engine": "cpu",
        "dmls.metric": "accuracy",
        "dmls.spec_sha256": result["spec_sha256"],
        "dmls.data_hash": result["data"]["hash"],
        "dmls.airflow_url": "http://airflow/run/1",
    }
    assert "http://airflow/run/1" in found.data.tags["mlflow.note.content"]
    files = {file.path for file in client.list_artifacts(run.run_id)}
    assert files == {"result.json", "report.html", "spec.json", "trials.json", "validation"}
    assert [file.path for file in client.list_artifacts(run.run_id, "validation")] == [
        "validation/validation.json"
    ]
    version = client.get_model_version(f"lab.{job}", str(run.model_version))
    assert version.run_id == run.run_id
    assert version.tags["dmls.run_key"] == result["run_key"]
    assert version.description == "random-forest-classifier (cpu): accuracy 0.9000 on the holdout"
    assert client.get_registered_model(f"lab.{job}").aliases == {"challenger": "1"}
    assert client.get_registered_model(f"lab.{job}").tags == {"dmls.team": "lab", "dmls.job": job}


def test_every_trial_is_a_child(mlflow_uri, client, tmp_path, job):
    run = log(mlflow_uri, trained_run(tmp_path / "run", job=job), tmp_path / "run")
    first, second, failed = children(client, run)
    assert [child.info.run_name for child in (first, second, failed)] == ["trial 0", "trial 1", "trial 2"]
    assert [child.info.status for child in (first, second, failed)] == ["FINISHED", "FINISHED", "FAILED"]
    assert second.data.params == {"n_estimators": "6"}
    assert second.data.metrics == {"cv_score": 0.801, "fold_score": 0.81, "seconds": 0.5}
    assert second.data.tags["dmls.same_as_trial"] == "0"
    assert second.info.start_time - first.info.start_time == 500
    assert failed.data.tags["dmls.message"] == "refused"
    folds = client.get_metric_history(first.info.run_id, "fold_score")
    assert [(point.step, point.value) for point in folds] == [(0, 0.79), (1, 0.8), (2, 0.81)]
    scores = client.get_metric_history(run.run_id, "trial_score")
    assert [(point.step, point.value) for point in scores] == [(0, 0.8), (1, 0.801)]


def test_a_repeat_finds_everything_and_adds_nothing(mlflow_uri, client, tmp_path, job, requests):
    result = trained_run(tmp_path / "run", job=job)
    first = log(mlflow_uri, result, tmp_path / "run")
    requests.clear()
    assert log(mlflow_uri, result, tmp_path / "run") == first
    assert requests.total() <= 8
    assert len(children(client, first)) == 3
    assert len(client.search_model_versions(f"name = 'lab.{job}'")) == 1
    assert len(client.search_runs([client.get_run(first.run_id).info.experiment_id])) == 4


@pytest.mark.parametrize("survived", [*range(3, 19, 6), *range(19, 26, 2), 28, 34])
def test_killed_anywhere_the_repeat_completes_it(mlflow_uri, client, tmp_path, job, monkeypatch, survived):
    import requests

    result = trained_run(tmp_path / "run", job=job)
    send, sent = requests.Session.request, itertools.count()

    class Killed(BaseException):
        pass

    def request(*args, **options):
        if next(sent) >= survived:
            raise Killed
        return send(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(requests.Session, "request", request)
        with pytest.raises(Killed):
            log(mlflow_uri, result, tmp_path / "run")
    run = log(mlflow_uri, result, tmp_path / "run")
    found = client.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    assert len(client.search_runs([found.info.experiment_id], filter_string="tags.`dmls.run_key` != ''")) == 1
    assert [child.info.status for child in children(client, run)] == ["FINISHED", "FINISHED", "FAILED"]
    assert [int(version.version) for version in client.search_model_versions(f"name = 'lab.{job}'")] == [1]
    assert len(client.search_logged_models([found.info.experiment_id])) == 1
    assert len(client.get_metric_history(run.run_id, "trial_score")) == 2
    assert len(client.get_metric_history(run.run_id, "accuracy")) == 1
    assert client.get_registered_model(f"lab.{job}").aliases == {"challenger": "1"}
    import mlflow.pyfunc

    mlflow.set_tracking_uri(mlflow_uri)
    assert len(mlflow.pyfunc.load_model(f"models:/lab.{job}/1").predict(frame(4))) == 4


def frame(n_rows, seed=5):
    import pandas as pd

    return pd.DataFrame(user_rows(n_rows, seed))


def test_requests_for_thirty_trials(mlflow_uri, tmp_path, job, requests):
    result = trained_run(tmp_path / "run", job=job, n_trials=30, n_trees=100)
    log(mlflow_uri, result, tmp_path / "run")
    assert requests.total() < 3 * 30 + 50, requests


def test_many_trials_cost_a_bounded_number_of_requests(
    mlflow_uri, client, tmp_path, job, requests, monkeypatch
):
    from dmls_core.tracking import runs

    monkeypatch.setattr(runs, "MAX_CHILDREN", 5)
    run = log(mlflow_uri, trained_run(tmp_path / "run", job=job, n_trials=1500), tmp_path / "run")
    assert requests.total() < 3 * 5 + 50
    assert [child.data.tags["dmls.trial"] for child in children(client, run)] == [
        str(n) for n in range(1495, 1500)
    ]
    assert len(client.get_metric_history(run.run_id, "trial_score")) == 1499


def compared(fresh):
    """Return the comparison of a worse challenger on rows of which the champion has seen none, or some."""
    truth = np.tile([0, 1], 40)
    answers = np.eye(2)[truth], np.eye(2)[np.where(np.arange(80) % 4, truth, 1 - truth)]
    given = {"version": 1, "run_key": "c" * 16, "min_improvement": 0.0, "fresh": fresh, "seed": 0}
    return compare("accuracy", "maximize", truth, *answers, **given).as_json()


def test_challenger_and_champion(mlflow_uri, client, tmp_path, job):
    name = f"lab.{job}"
    assert champion_of(mlflow_uri, name) is None
    with pytest.raises(NotFoundError):
        promote(mlflow_uri, name, 1)
    first_result = trained_run(tmp_path / "a", job=job, run_key="a" * 16)
    first_result["comparison"] = compared("none")
    first = log(mlflow_uri, first_result, tmp_path / "a")
    assert not [name for name in client.get_run(first.run_id).data.metrics if "comparison" in name]
    assert "does not say which one" in client.get_model_version(name, "1").tags["dmls.comparison"]
    assert champion_of(mlflow_uri, name) is None
    promote(mlflow_uri, name, first.model_version, triton_version=7)
    assert champion_of(mlflow_uri, name) == find_champion(mlflow_uri, name) == RegisteredVersion(1, "a" * 16)
    assert client.get_registered_model(name).aliases == {"champion": "1"}
    assert client.get_model_version(name, "1").tags["dmls.triton_version"] == "7"
    second_result = trained_run(tmp_path / "b", job=job, run_key="b" * 16, seed=3)
    second = log(mlflow_uri, second_result | {"comparison": compared("all")}, tmp_path / "b")
    metrics = client.get_run(second.run_id).data.metrics
    assert {name for name in metrics if name.startswith("comparison.")} == {
        f"comparison.{name}" for name in COMPARED
    }
    assert metrics["comparison.difference"] == -0.25
    assert (first.model_version, second.model_version) == (1, 2)
    assert client.get_registered_model(name).aliases == {"champion": "1", "challenger": "2"}
    assert log(mlflow_uri, first_result, tmp_path / "a") == first, "a champion is no challenger"
    assert client.get_registered_model(name).aliases == {"champion": "1", "challenger": "2"}
    promote(mlflow_uri, name, 2)
    promote(mlflow_uri, name, 2)
    assert client.get_registered_model(name).aliases == {"champion": "2"}
    promote(mlflow_uri, name, 1)
    assert find_champion(mlflow_uri, name).version == 1
    with pytest.raises(TrackingError, match=f"could not make version 9 of {name} the champion"):
        promote(mlflow_uri, name, 9)


def test_an_experiment_in_the_bin_is_brought_back(mlflow_uri, client, tmp_path, job):
    result = trained_run(tmp_path / "run", job=job)
    first = log(mlflow_uri, result, tmp_path / "run")
    client.delete_experiment(client.get_run(first.run_id).info.experiment_id)
    again = log(mlflow_uri, result, tmp_path / "run")
    assert client.get_run(again.run_id).info.status == "FINISHED"
    assert client.get_experiment_by_name(f"dmls/lab/{job}").lifecycle_stage == "active"


LOAD = """
import json, os, sys

class NoDmls:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dmls_core", "sklearn", "xgboost", "lightgbm", "polars", "optuna"):
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, NoDmls())
import mlflow.pyfunc, pandas
model = mlflow.pyfunc.load_model(sys.argv[1])
answers = model.predict(pandas.read_json(sys.argv[2], orient="split", dtype=False))
answers.to_json(sys.argv[3], orient="split", double_precision=15)
assert "dmls_core" not in sys.modules
"""


@pytest.mark.parametrize("kind", ["classes", "binary", "regression"])
def test_the_champion_loads_where_dmls_is_not(mlflow_uri, tmp_path, job, kind):
    import pandas as pd

    result = trained_run(
        tmp_path / "run", job=job, regression=kind == "regression", binary=kind == "binary", n_trees=20
    )
    run = log(mlflow_uri, result, tmp_path / "run")
    promote(mlflow_uri, f"lab.{job}", run.model_version)
    golden = json.loads((tmp_path / "run/model/golden.json").read_text())
    rows = pd.DataFrame(golden["columns"]).assign(extra="ignored")
    rows.index = range(1000, 1000 + len(rows))
    rows.to_json(tmp_path / "rows.json", orient="split")
    (tmp_path / "load.py").write_text(textwrap.dedent(LOAD))
    done = subprocess.run(
        [sys.executable, "load.py", f"models:/lab.{job}@champion", "rows.json", "answers.json"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MLFLOW_TRACKING_URI": mlflow_uri},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "UserWarning" not in done.stderr
    answers = pd.read_json(tmp_path / "answers.json", orient="split", dtype=False)
    assert list(answers.index) == list(rows.index)
    expected = np.asarray(golden["expected"])
    if kind == "regression":
        assert list(answers.columns) == ["prediction"]
        assert np.allclose(answers["prediction"], expected[:, 0], rtol=1e-6)
        return
    assert list(answers.columns) == ["prediction", *(f"probability_{label}" for label in golden["labels"])]
    assert list(answers["prediction"]) == [golden["labels"][i] for i in expected.argmax(axis=1)]
    assert np.abs(answers.iloc[:, 1:].to_numpy(float) - expected).max() <= 1e-6


def test_the_users_frame_goes_in_as_it_is(mlflow_uri, tmp_path, job):
    """Whole numbers, texts of numbers, categories never seen, missing values, columns in any order."""
    import mlflow.pyfunc
    import pandas as pd

    run = log(mlflow_uri, trained_run(tmp_path / "run", job=job), tmp_path / "run")
    mlflow.set_tracking_uri(mlflow_uri)
    model = mlflow.pyfunc.load_model(f"models:/lab.{job}/{run.model_version}")
    plain = model.predict(pd.DataFrame({"size": [1.0, 0.0], "count": [3.0, 4.0], "colour": ["red", None]}))
    odd = model.predict(pd.DataFrame({"colour": ["red", "mauve"], "count": ["3", None], "size": [1, 0]}))
    pd.testing.assert_frame_equal(plain, odd)
    with pytest.raises(Exception, match="size"):
        model.predict(pd.DataFrame({"colour": ["red"], "count": [1]}))
    assert model.metadata.signature.inputs.input_names() == ["size", "count", "colour"]
    assert model.metadata.signature.outputs.input_names()[0] == "prediction"
    example = model.input_example
    assert list(example.columns) == ["size", "count", "colour"]
    assert len(model.predict(example)) == len(example)


def test_a_logged_model_is_code_and_data_and_says_what_it_needs(mlflow_uri, client, tmp_path, job):
    import mlflow.artifacts

    run = log(mlflow_uri, trained_run(tmp_path / "run", job=job), tmp_path / "run")
    mlflow.set_tracking_uri(mlflow_uri)
    uri = f"models:/lab.{job}/{run.model_version}"
    folder = Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(tmp_path / "model")))
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {
        "pyfunc_model.py",
        "code/dmls_model/encoder.py",
        "code/dmls_model/moments.py",
        "artifacts/checkpoint.tl",
    } <= files
    assert (folder / "artifacts/card.html").read_text().startswith("<!doctype html>")
    assert not [name for name in files if name.endswith((".pkl", ".pickle", ".pyc"))]
    requirements = (folder / "requirements.txt").read_text().split()
    assert sorted(line.partition("==")[0] for line in requirements) == [
        "mlflow",
        "numpy",
        "pandas",
        "treelite",
    ]
    assert all("==" in line for line in requirements)
    assert (folder / "artifacts/checkpoint.tl").read_bytes() == (
        tmp_path / "run/model/checkpoint.tl"
    ).read_bytes()


def test_without_a_server_the_error_comes_at_once_and_says_where():
    (port,) = free_ports(1)
    start = time.monotonic()
    with pytest.raises(TrackingError, match=f"does not answer at http://127.0.0.1:{port}"):
        find_champion(f"http://127.0.0.1:{port}", "lab.iris")
    assert time.monotonic() - start < 60  # MLflow itself would try for minutes.
    for uri in ("", "file:///tmp/mlruns"):
        with pytest.raises(PlatformError):
            find_champion(uri, "lab.iris")


def test_who_deployed_what_and_which_version_serves(mlflow_uri, client, tmp_path, job):
    name = f"lab.{job}"
    for number in (1, 2):
        folder = tmp_path / str(number)
        run = log(mlflow_uri, trained_run(folder, job=job, run_key=f"{number:016x}", seed=number), folder)
        assert run.model_version == number
        promote(mlflow_uri, name, number, triton_version=number + 6, deployed_by="Airflow run 1")
    assert registered_as(mlflow_uri, name, 7) == 1
    assert champions(mlflow_uri)[name] == 8
    promote(mlflow_uri, name, 1, triton_version=7, deployed_by="dmls rollback by ann@desk")
    assert champions(mlflow_uri)[name] == 7
    tags = client.get_model_version(name, "1").tags
    assert tags["dmls.deployed_by"] == "dmls rollback by ann@desk"
    assert tags["dmls.deployed_at"].endswith("+00:00")
    with pytest.raises(NotFoundError, match="dmls.triton_version=99"):
        registered_as(mlflow_uri, name, 99)
