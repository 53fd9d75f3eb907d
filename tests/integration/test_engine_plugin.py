"""The example engine trains jobs, and Triton serves its models."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_iris

from dmls_core.data.encoder import Encoder
from dmls_core.serving import Deployment, Predictor
from dmls_core.serving.triton.model_config import table_name
from tests.services.triton_server import TritonProcess
from tests.support.table_endpoint import post, request_body

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins" / "dmls-hist-gradient-boosting"
MODULE = "dmls_hist_gradient_boosting"

SPEC = """
model = "hist-gradient-boosting-classifier"
n_trials = 3
[columns]
target = "species"
[n_estimators]
min = 10
max = 30
[search]
metric = "correct_share"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed engine, and a metric of its own, for ``PYTHONPATH``."""
    folder = tmp_path_factory.mktemp("plugin")
    uv = Path(sys.executable).with_name("uv")
    options = ["--quiet", "--offline", "--no-index", "--no-deps", "--no-build-isolation"]
    target = ["--python", sys.executable, "--target", folder / "site"]
    sources = [shutil.copytree(EXAMPLE, folder / "engine"), metric_package(folder / "metric")]
    subprocess.run([uv, "pip", "install", *options, *target, *sources], check=True, timeout=120)
    return folder / "site"


def metric_package(folder: Path) -> Path:
    """Write the package of the guide to add a metric."""
    guide = (ROOT / "docs" / "extending" / "metrics.md").read_text()
    folder.mkdir()
    for file in ("pyproject.toml", "dmls_correct_share.py"):
        _, _, rest = guide.partition(f'title="{file}"\n')
        (folder / file).write_text(rest.partition("```")[0])
    return folder


def run(installed: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=environment, timeout=600
    )


def train(installed: Path, folder: Path, spec: str, columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Train a job in ``folder`` and return its result; the model is in ``out/model``."""
    folder.mkdir(exist_ok=True)
    pl.DataFrame(columns).write_csv(folder / "data.csv")
    (folder / "spec.toml").write_text(spec)
    command = ["-m", "dmls_core.cli", "train", "spec.toml", "data.csv", "--out", "out", "--json"]
    done = run(installed, *command, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def iris() -> dict[str, list[Any]]:
    data = load_iris()
    features = {name: data.data[:, position].tolist() for position, name in enumerate("abcd")}
    return features | {"species": [str(data.target_names[code]) for code in data.target]}


def houses(rows: int = 300) -> dict[str, list[Any]]:
    """Numbers with gaps and a category; the price depends on both."""
    rng = np.random.default_rng(0)
    area, town = rng.uniform(20, 200, rows), rng.choice(["north", "south", "west"], rows)
    price = 1_000 * area * np.where(town == "south", 2.0, 1.0) + rng.normal(0, 500, rows)
    area[::17] = np.nan
    return {
        "area": [None if np.isnan(value) else float(value) for value in area],
        "town": town.tolist(),
        "price": price.tolist(),
    }


def test_a_job_with_the_engine_and_a_metric_of_another_package_is_trained_deployed_and_queried(
    installed: Path, triton: TritonProcess, tmp_path: Path
):
    result = train(installed, tmp_path, SPEC, iris())
    assert result["model"] == "hist-gradient-boosting-classifier"
    assert result["metric"] == "correct_share"
    assert result["score"] > 0.8
    assert result["best_params"]["max_iter"] == result["best_params"]["n_estimators"]

    with triton.client() as client:
        deployed = Deployment(triton.repository, client, "lab.plugin-classes").deploy(tmp_path / "out/model")
        assert (deployed.version, client.versions("lab.plugin-classes")) == (1, (1,))
        rows = iris()
        species = rows.pop("species")
        answers = Predictor(triton.repository, client, "lab.plugin-classes").predict(rows)
    assert np.mean(np.asarray(answers.values) == species) > 0.9
    assert answers.probabilities.shape == (len(species), 3)
    assert np.allclose(answers.probabilities.sum(axis=1), 1.0, atol=1e-5)


@pytest.mark.nightly("the job before it has classes; `test_table_endpoint.py` answers a regression over HTTP")
def test_a_regressor_of_the_engine_answers_named_columns_over_plain_http(
    installed: Path, triton: TritonProcess, tmp_path: Path
):
    spec = """
model = "hist-gradient-boosting-regressor"
n_trials = 2
[columns]
target = "price"
[n_estimators]
min = 50
max = 100
"""
    assert train(installed, tmp_path, spec, houses())["score"] > 0.8

    with triton.client() as client:
        Deployment(triton.repository, client, "lab.plugin-values").deploy(tmp_path / "out/model")
    rows = {"area": [100.0, 100.0, None], "town": ["south", "north", "elsewhere"]}
    encoder = Encoder.from_json(json.loads((tmp_path / "out/model/encoder.json").read_text()))
    address = triton.context.address("triton_http")
    status, answer = post(address, table_name("lab.plugin-values"), request_body(encoder, rows))
    assert status == 200, answer
    values = {output["name"]: output["data"] for output in answer["outputs"]}["value"]
    assert values[0] == pytest.approx(200_000, rel=0.15)
    assert values[1] == pytest.approx(100_000, rel=0.15)
    assert np.isfinite(values[2])


def test_a_misspelled_metric_names_the_one_of_the_package(installed: Path, tmp_path: Path):
    (tmp_path / "spec.toml").write_text(SPEC.replace("correct_share", "corect_share"))

    done = run(installed, "-m", "dmls_core.cli", "validate", "spec.toml", cwd=tmp_path)

    assert done.returncode == 1
    assert "did you mean correct_share?" in done.stdout + done.stderr


def test_the_guide_shows_the_files_of_the_example():
    guide = (ROOT / "docs" / "extending" / "engines.md").read_text()
    for file in ("pyproject.toml", f"{MODULE}.py", f"test_{MODULE}.py"):
        assert (EXAMPLE / file).read_text() in guide, f"run: copy {file} into docs/extending/engines.md"
