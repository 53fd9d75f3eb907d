from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext

import polars as pl
import pytest
from typer.testing import CliRunner

from dmls_core.cli.main import app
from dmls_core.errors import NotFoundError
from dmls_core.serving import Deployment, Repository
from tests.support.model_folder import toy_model_folder
from tests.unit.serving.conftest import PlayedTriton
from tests.unit.serving.predict.test_predictor import Sums

NAME = "lab.iris"


@pytest.fixture
def played(tmp_path, monkeypatch):
    """A repository that serves the second of two versions, and the champions that MLflow received."""
    monkeypatch.setattr("dmls_core.serving.deployment.acceptance.check_model", lambda *_: None)
    repository = Repository(str(tmp_path / "models"))
    triton, promoted = PlayedTriton(repository), []
    for name in ("a", "b"):
        Deployment(repository, triton, NAME).deploy(
            toy_model_folder(tmp_path / name, checkpoint=name.encode())
        )

    @contextmanager
    def servers(http, grpc, *, key=""):
        assert (http, grpc, key) == ("h:1", "g:1", "k")
        yield (triton,)

    monkeypatch.setattr("dmls_core.serving.triton.placement.triton_servers", servers)

    def promote_served(uri, name, triton_version, *, deployed_by):
        promoted.append((uri, name, triton_version, deployed_by.split(" by ")[0]))

    monkeypatch.setattr("dmls_core.tracking.registry.promote_served", promote_served)
    for variable, value in {
        "DMLS_TRITON_HTTP": "h:1",
        "DMLS_TRITON_GRPC": "g:1",
        "DMLS_TRITON_KEY": "k",
        "DMLS_TRITON_REPOSITORY": str(tmp_path / "models"),
        "MLFLOW_TRACKING_URI": "http://ml",
        "DMLS_HOME": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(variable, value)
    return triton, promoted


def test_back_and_forth_moves_both(played):
    triton, promoted = played
    done = CliRunner().invoke(app, ["rollback", "lab/iris", "--json"])
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["model"], answer["version"], answer["previous"]) == (NAME, 1, 2)
    assert triton.served[NAME] == triton.served[f"{NAME}.table"] == 1
    assert promoted == [("http://ml", NAME, 1, "dmls rollback")]
    assert CliRunner().invoke(app, ["rollback", "lab/iris", "--to", "2"]).exit_code == 0
    assert triton.served[NAME] == 2
    assert promoted[-1][2] == 2


def test_a_version_that_is_not_kept_is_a_users_mistake(played):
    triton, promoted = played
    done = CliRunner().invoke(app, ["rollback", "lab/iris", "--to", "7"])
    assert isinstance(done.exception, NotFoundError)
    assert "kept versions: 1, 2" in str(done.exception)
    assert triton.served[NAME] == 2
    assert promoted == []


def test_it_needs_no_name_of_the_user(played, monkeypatch):
    def no_name():
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", no_name)
    done = CliRunner().invoke(app, ["rollback", "lab/iris", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["by"].startswith("uid ")
    assert played[0].served[NAME] == 1


@pytest.mark.usefixtures("feather")
def test_rows_of_any_format_are_predicted(played, monkeypatch, tmp_path):
    triton, _ = played
    monkeypatch.setattr(triton, "infer", Sums().infer)
    monkeypatch.setattr(
        "dmls_core.serving.triton.placement.triton_servers", lambda *_: nullcontext((triton,))
    )
    frame = pl.DataFrame({"length": [1.0, None], "width": [0, 2]})
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ipc(tmp_path / "a.feather")
    for name in ("a.csv", "a.parquet", "a.feather"):
        done = CliRunner().invoke(app, ["predict", "lab/iris", str(tmp_path / name)])
        assert done.exit_code == 0, (name, done.output)
        assert [line.split(",")[2] for line in done.stdout.splitlines()] == [
            "prediction",
            "versicolor",
            "virginica",
        ]
    frame.with_columns(width=pl.lit("wide")).write_ipc(tmp_path / "a.feather")
    done = CliRunner().invoke(app, ["predict", "lab/iris", str(tmp_path / "a.feather")])
    assert str(done.exception).splitlines() == [
        f"{tmp_path}/a.feather: column 'width', row {row}: 'wide' is not a number" for row in (1, 2)
    ]
