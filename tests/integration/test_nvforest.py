"""nvForest on the CPU, installed from its lock: it predicts what Treelite predicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dmls_core.tracking.model_folder import built_model
from tests.support.trained_run import trained_run

ROOT = Path(__file__).parents[2]

PREDICT = """
import numpy as np
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.formats.treelite.gtil import nvforest_predictor, predict_float32
from tests.support.fil_cases import ROWS, made_model

def compare(kind):
    rows = np.concatenate([ROWS, 1e6 * ROWS, np.trunc(9 * ROWS)])
    if kind == "categories":  # whole numbers as the encoder writes them: known, unknown, and -1
        rows[:, :2] = np.trunc(rows[:, :2]) % 20 - 1
    rows[np.random.default_rng(1).random(rows.shape) < 0.1] = np.nan
    model = made_model(kind)
    found, expected = nvforest_predictor(model)(rows), predict_float32(model, rows)
    return {
        "shapes": [found.shape, expected.shape],
        "equal": bool(np.array_equal(found, expected)),
        "difference": float(np.abs(found - expected).max()),
        "tolerance": checkpoint.tolerance(model, rows),
    }

print(json.dumps({kind: compare(kind) for kind in kinds}))
"""

PYFUNC = """
import sys

import mlflow.pyfunc
import pandas as pd

model = mlflow.pyfunc.load_model(folder)
found = model.predict(pd.DataFrame(columns))
print(json.dumps({
    "by_nvforest": "nvforest" in sys.modules,
    "predictions": found.iloc[:, 1:].to_numpy().tolist(),
}))
"""

DOCTOR = """
from dmls_core.devstack.doctor.machine import check_nvforest
print(json.dumps(check_nvforest().as_json()))
"""

WRONG = """
import numpy as np
from dmls_core.serving.formats.treelite.gtil import nvforest_predictor
from tests.support.fil_cases import made_model

try:
    nvforest_predictor(made_model("three"))(np.zeros((2, 3)))
except ValueError as error:
    print(json.dumps(str(error)))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the lock into a folder for ``PYTHONPATH``; NumPy and Treelite are those that run this."""
    if sys.platform != "linux":
        pytest.skip("nvForest has packages for Linux only")
    folder = tmp_path_factory.mktemp("nvforest")
    command = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--python", sys.executable]
    command += ["--no-deps", "--require-hashes", "--target", folder, "-r", ROOT / "requirements/nvforest.txt"]
    subprocess.run(command, check=True, timeout=300)
    return folder


def run(site: Path, script: str, **values: Any) -> Any:
    """Run a script with ``values`` as its variables, and return the JSON that it prints last."""
    given = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    done = subprocess.run(
        [sys.executable, "-c", f"import json\n{given}{script}"],
        env={**os.environ, "PYTHONPATH": f"{site}:{ROOT}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


FORESTS, BOOSTED = ("two", "three", "values"), ("boosted", "categories", "oblivious")


@pytest.fixture(scope="module")
def compared(site: Path) -> dict[str, Any]:
    """How nvForest's predictions compare with Treelite's, by kind of model."""
    return run(site, PREDICT, kinds=[*FORESTS, *BOOSTED])


@pytest.mark.parametrize("kind", FORESTS)
def test_forests_answer_as_treelite_bit_for_bit(compared: dict[str, Any], kind: str) -> None:
    found = compared[kind]
    assert found["shapes"][0] == found["shapes"][1]
    assert found["equal"]


@pytest.mark.parametrize("kind", BOOSTED)
def test_boosted_trees_answer_within_the_tolerance(compared: dict[str, Any], kind: str) -> None:
    found = compared[kind]
    assert found["shapes"][0] == found["shapes"][1]
    assert found["difference"] <= found["tolerance"]


def test_rows_of_another_width_are_refused(site: Path) -> None:
    assert run(site, WRONG) == "the model has 4 features, but the rows have shape (2, 3)"


def test_a_model_that_mlflow_loads_predicts_with_it(site: Path, tmp_path: Path) -> None:
    from mlflow.models import Model

    trained_run(tmp_path / "run")
    golden = json.loads((tmp_path / "run/model/golden.json").read_text())
    with built_model(tmp_path / "run/model", Model(), {}) as folder:
        found = run(site, PYFUNC, folder=str(folder), columns=golden["columns"])
    assert found["by_nvforest"]
    assert found["predictions"] == golden["expected"]


def test_dmls_doctor_names_what_predicts(site: Path) -> None:
    found = run(site, DOCTOR)
    assert found["state"] == "ok"
    assert "nvForest 26" in found["message"]
