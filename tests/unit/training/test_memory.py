"""Data larger than memory is trained on from disk, with the same kind of result as in memory."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from dmls_core import stored_matrix
from dmls_core.models import load_spec
from dmls_core.training import TrainRequest, memory, train
from dmls_core.training.memory import data_memory, exceeds_memory
from dmls_core.training.plan import plan_run

SPEC = """model = "{model}"
n_trials = 3
[columns]
target = "y"
[n_estimators]
min = 20
max = 40
[max_depth]
min = 3
max = 5
[resources]
memory = "64 MiB"
"""


def write(folder, model: str, rows: int = 3_000):
    draw = np.random.default_rng(1)
    values = draw.normal(size=(rows, 5)).round(3)
    score = values[:, 0] + (draw.integers(0, 3, rows) == 1) + draw.normal(size=rows) / 4
    pl.DataFrame(values, schema=list("abcde")).with_columns(
        kind=pl.Series(draw.choice(["x", "y", "z"], rows)),
        y=pl.Series(np.where(score > 0, "up", "down") if model.endswith("classifier") else score),
    ).write_csv(folder / "data.csv")
    spec = folder / "spec.toml"
    spec.write_text(SPEC.format(model=model))
    return spec, folder / "data.csv"


def run(spec, data, out) -> dict:
    lines: list[str] = []
    result = train(TrainRequest(str(spec), (str(data),), str(out)), progress=lines.append)
    return result | {"log": "\n".join(lines)}


@pytest.mark.parametrize("model", ["xgboost-classifier", "xgboost-regressor", "random-forest-classifier"])
def test_run_from_disk_scores_as_in_memory(model, tmp_path, monkeypatch):
    spec, data = write(tmp_path, model)
    whole = run(spec, data, tmp_path / "memory")
    monkeypatch.setattr(stored_matrix, "BLOCK_BYTES", 4 * 6 * 500)
    monkeypatch.setattr(memory, "BASE_BYTES", (64 << 20) - 120_000)
    monkeypatch.setattr(memory, "FEWEST", 0)

    stored = run(spec, data, tmp_path / "disk")

    assert whole["folds"] > 1
    assert "does not fit in 0.0625 GiB of memory" in stored["log"]
    low, high = whole["holdout"]["interval"]
    assert low - (high - low) / 4 <= stored["score"] <= high + (high - low) / 4
    for name in ("features", "labels", "n_trials"):
        assert stored[name] == whole[name]
    assert stored["data"]["rows"] == whole["data"]["rows"] == 3_000
    assert stored["data"]["holdout_rows"] == whole["data"]["holdout_rows"]
    assert {item["name"] for item in stored["artifacts"]} == {item["name"] for item in whole["artifacts"]}
    golden, other = (
        json.loads((tmp_path / one / "model/golden.json").read_text()) for one in ("disk", "memory")
    )
    assert golden["columns"] == other["columns"]
    sampled = model.startswith("random-forest")
    assert stored["folds"] == (whole["folds"] if sampled else 1)
    assert any("is fitted on" in warning for warning in stored["warnings"]) == sampled


def test_plan_says_that_the_data_does_not_fit(tmp_path, monkeypatch):
    spec, data = write(tmp_path, "xgboost-classifier")
    monkeypatch.setattr(memory, "FEWEST", 0.001)

    plan = plan_run(load_spec(spec.read_bytes(), file="spec.toml"), [data])

    assert plan.rows == 3_000
    assert "the data does not fit in 0.0625 GiB of memory" in plan.warnings[0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_size_of_the_matrix_decides(suffix, tmp_path, monkeypatch):
    spec, data = write(tmp_path, "xgboost-classifier")
    if suffix == "parquet":
        pl.read_csv(data).write_parquet(data := tmp_path / "data.parquet")
    parsed = load_spec(spec.read_bytes(), file="spec.toml")
    matrix = 4 * 6 * 3_000
    assert data_memory(parsed) == int(16 * 2**20 / memory.MATRICES)

    for share, larger in ((2.0, False), (0.5, True)):
        monkeypatch.setattr(memory, "FEWEST", share * matrix * memory.MATRICES / 2**26)
        assert exceeds_memory(parsed, [data]) is larger
