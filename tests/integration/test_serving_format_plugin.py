"""The example serving format goes through a model's whole life in Triton, as forests do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dmls_core import extensions
from dmls_core.errors import ServingError, UserError
from dmls_core.serving import Deployment, Predictor, connect
from dmls_core.serving.deployment.reconcile import reconcile
from dmls_core.serving.formats.base import serving_format
from dmls_core.serving.predict.export import export_version
from dmls_core.serving.triton import startup
from dmls_core.training.model_folder import golden_predictions
from tests.support.trained_run import LABELS, trained_run, user_rows

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugins" / "dmls-linear-format"
NAME = "lab.linear"


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """The example, as if it were installed where DMLS is."""
    folder = tmp_path_factory.mktemp("plugin")
    uv = Path(sys.executable).with_name("uv")
    options = ["--quiet", "--offline", "--no-index", "--no-deps", "--no-build-isolation"]
    source = shutil.copytree(EXAMPLE, folder / "source")
    target = ["--python", sys.executable, "--target", folder / "site", source]
    subprocess.run([uv, "pip", "install", *options, *target], check=True, timeout=120)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "site")
        patch.setenv("PYTHONPATH", str(folder / "site"))  # of the process that inspects models
        _forget_entry_points()
        yield
    _forget_entry_points()


def _forget_entry_points():
    for cached in (extensions._all_entries, extensions._entries, extensions.load):
        cached.cache_clear()


class Weights:
    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self.coefficients, self.intercepts = random.normal(size=(3, 3)) / 10, random.normal(size=3)

    def weights(self):
        return self.coefficients, self.intercepts


@pytest.fixture
def linear(tmp_path):
    """Write the ``model/`` folder of a run whose model is linear; another seed is another model."""

    def make(seed):
        trained_run(tmp_path / str(seed), seed=seed)
        folder = tmp_path / str(seed) / "model"
        (folder / "checkpoint.tl").unlink()
        serving = serving_format("linear-json")
        written = serving.export(Weights(seed), folder, threads=1)
        about, golden = (json.loads((folder / name).read_text()) for name in ("model.json", "golden.json"))
        del about["sha256"]
        outputs, _ = golden_predictions(None, written.predict(np.asarray(golden["encoded"], np.float32)))
        (folder / "golden.json").write_text(json.dumps(golden | {"expected": outputs.tolist()}))
        (folder / "model.json").write_text(json.dumps(about | {"format": serving.name}))
        return folder

    return make


@pytest.fixture
def client(triton):
    with triton.client(timeout=60.0) as client:
        yield client


@pytest.fixture
def deployment(triton, client):
    return Deployment(triton.repository, client, NAME)


def predicted(deployment, client):
    return Predictor(deployment.repository, client, NAME).predict(user_rows(40, 5))


def test_a_model_goes_live_and_back(deployment, client, linear, tmp_path):
    first, second = linear(1), linear(2)
    served = deployment.deploy(first)
    assert served.proof is not None
    assert (served.proof.rows, served.proof.served_by) == (90, "Triton's python backend")
    before = predicted(deployment, client)

    broken = shutil.copytree(second, tmp_path / "broken")
    (broken / "weights.json").write_text((second / "weights.json").read_text()[:-20])
    with pytest.raises(ServingError, match=r"weights\.json of lab\.linear is damaged; Triton did not"):
        deployment.deploy(broken)
    wrong = shutil.copytree(second, tmp_path / "wrong")
    shutil.copy(first / "weights.json", wrong)
    with pytest.raises(ServingError, match="golden row 0 expected"):
        deployment.deploy(wrong)
    assert np.array_equal(predicted(deployment, client).probabilities, before.probabilities)

    newer = deployment.deploy(second)
    after = predicted(deployment, client)
    assert not np.allclose(after.probabilities, before.probabilities)
    assert newer.previous == served.version

    deployment.rollback()
    assert np.array_equal(predicted(deployment, client).probabilities, before.probabilities)
    client.unload(NAME)
    assert "served no version" in reconcile(deployment, lambda: served.version)
    assert predicted(deployment, client).version == served.version
    assert NAME in startup.models_to_load(deployment.repository)


def test_formats_challenge_each_other(deployment, client, linear, tmp_path):
    trained_run(tmp_path / "forest", seed=9)
    forest = deployment.deploy(tmp_path / "forest" / "model").version
    challenger = deployment.start_canary(linear(3), share=1.0, shadow=False)
    rows = user_rows(40, 5)
    table = {name: np.asarray(values) for name, values in rows.items()}
    with connect(NAME, grpc=client.addresses["grpc"]) as model:
        by_challenger = model.predict(table)
        deployment.end_canary()
        by_forest = model.predict(table)
    expected = serving_format("linear-json").load(tmp_path / "3" / "model")
    encoded = Predictor(deployment.repository, client, NAME).encoder.transform(rows)
    probabilities = np.stack([by_challenger[f"probability_{label}"] for label in LABELS], axis=1)
    np.testing.assert_allclose(probabilities, expected(encoded), atol=1e-6)
    assert not np.allclose(by_forest[f"probability_{LABELS[0]}"], probabilities[:, 0])
    assert (deployment.repository.serving(NAME), challenger > forest) == (forest, True)


def test_it_is_exported_and_logged(deployment, linear, tmp_path):
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import Model

    from dmls_core.tracking.model_folder import built_model

    folder = linear(4)
    version = deployment.deploy(folder).version
    about = export_version(deployment.repository, NAME, "triton", tmp_path / "out", version=version)
    assert {f"models/{NAME}/1/{file}" for file in ("model.py", "predictor.py", "weights.json")} <= {
        *about["files"]
    }
    with pytest.raises(UserError, match="'linear-json' cannot be exported as ONNX"):
        export_version(deployment.repository, NAME, "onnx", tmp_path / "onnx", version=version)

    golden = json.loads((folder / "golden.json").read_text())
    with built_model(folder, Model(), {}) as built:
        requirements = (built / "requirements.txt").read_text()
        answers = mlflow.pyfunc.load_model(str(built)).predict(pd.DataFrame(golden["columns"]))
    assert "treelite" not in requirements
    probabilities = answers.drop(columns="prediction").to_numpy()
    np.testing.assert_allclose(probabilities, golden["expected"], atol=1e-6)
