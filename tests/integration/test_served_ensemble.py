"""Whole training runs with ``[search] ensemble``, served by Triton."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dmls_core.serving import Deployment, connect
from dmls_core.serving.triton.addresses import PROTOCOLS
from dmls_core.training import train
from tests.integration.test_train import check_answers, request
from tests.services.triton_server import TritonProcess

# Noisy models: their mean is clearly better.
SPEC = """
n_trials = 9

[columns]
target = "y"

[search]
strategy = "grid"
metric = "log_loss"
ensemble = true

[n_estimators]
value = 15

[learning_rate]
value = 0.5

[max_depth]
value = 6

[colsample_bytree]
values = [0.3, 0.5, 0.8]

[subsample]
values = [0.3, 0.4, 0.5]
"""


@pytest.mark.parametrize(
    "family",
    [
        pytest.param("xgboost", marks=pytest.mark.nightly("`make test` does it with LightGBM")),
        "lightgbm",
    ],
)
def test_an_ensemble_is_the_model_that_is_scored_written_and_served(
    tmp_path: Path, triton: TritonProcess, family: str
):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(900, 4))
    code = np.digitize(x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(0, 1, 900), [-0.7, 0.7])
    lines = [
        "a,b,c,d,y",
        *(f"{','.join(f'{v:.5f}' for v in row)},c{y}" for row, y in zip(x, code, strict=True)),
    ]
    (tmp_path / "iris.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "spec.toml").write_text(f'model = "{family}-classifier"\n{SPEC}')
    notes: list[str] = []

    result = train(request(tmp_path), progress=notes.append)

    ensemble = result["ensemble"]
    before, after = ensemble["before"], ensemble["after"]
    assert len(ensemble["members"]) > 1
    assert ensemble["members"][0]["trial"] == result["best_trial"]
    assert before["trees"] == 45
    assert after["trees"] == 3 * sum(member["trees"] for member in ensemble["members"])
    assert result["score"] == pytest.approx(after["score"], abs=1e-5)
    assert result["size"]["trees"] == after["trees"]
    assert result["size"]["bytes"] == after["bytes"] == (tmp_path / "out/model/checkpoint.tl").stat().st_size
    assert "Ensemble" in (tmp_path / "out/model/card.html").read_text()
    assert "mean of" in (tmp_path / "out/report.html").read_text()
    assert any(f"the mean of {len(ensemble['members'])} trials" in note for note in notes)
    check_answers(tmp_path / "out")
    check_served(tmp_path / "out/model", triton, f"lab.ensemble-{family}")


def test_the_mean_of_three_families_is_served_with_categories_and_missing_values(
    tmp_path: Path, triton: TritonProcess
):
    rng = np.random.default_rng(0)
    x, kinds = rng.normal(size=(900, 3)), rng.choice(list("uvwxyz"), 900)
    value = x[:, 0] + x[:, 1] * np.isin(kinds, ("u", "x")) + rng.normal(0, 1, 900)
    lines = ["a,b,c,kind,y"]
    for row, kind, code in zip(x, kinds, np.digitize(value, [-0.7, 0.7]), strict=True):
        lines.append(f"{row[0]:.5f},{row[1]:.5f},{row[2]:.5f},{kind if row[2] < 1.5 else ''},c{code}")
    (tmp_path / "iris.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "spec.toml").write_text(
        'model = "auto-classifier"\nn_trials = 6\n[columns]\ntarget = "y"\n[search]\nmetric = "log_loss"\n'
    )

    result = train(request(tmp_path), progress=lambda _: None)

    members = {member["model"] for member in result["ensemble"]["members"]}
    assert members == {"lightgbm-classifier", "xgboost-classifier", "catboost-classifier"}
    check_answers(tmp_path / "out")
    check_served(tmp_path / "out/model", triton, "lab.families")


def check_served(folder: Path, triton: TritonProcess, name: str) -> None:
    """Deploy a model, and compare its answers with those of training."""
    golden = json.loads((folder / "golden.json").read_text())
    expected = np.asarray(golden["expected"], np.float32)
    with triton.client() as client:
        deployed = Deployment(triton.repository, client, name).deploy(folder)
        assert deployed.proof is not None
        assert deployed.proof.rows == len(expected)
        for protocol in PROTOCOLS:
            rows = np.asarray(golden["encoded"], np.float32)
            got = client.infer(name, rows, version=deployed.version, protocol=protocol)
            assert np.abs(got.reshape(expected.shape) - expected).max() <= golden["tolerance"]
        with connect(name, grpc=client.addresses["grpc"]) as model:
            labels = [golden["labels"][code] for code in expected.argmax(axis=1)]
            assert list(model.predict(golden["columns"])["prediction"]) == labels
