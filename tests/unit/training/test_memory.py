"""Data larger than memory is trained on from disk, with the same kind of result as in memory."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from dmls_core import stored_matrix
from dmls_core.data.table.memory import TableSize, measure_table
from dmls_core.models import load_spec
from dmls_core.models.engines import lightgbm
from dmls_core.training import TrainRequest, memory, train
from dmls_core.training.memory import estimate_memory, fits, run_memory
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
    monkeypatch.setattr(memory, "FEWEST", 120_000 / (64 << 20))
    monkeypatch.setattr(memory, "STORED_ROW", 0)

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


def test_the_beginning_of_a_file_stands_for_the_whole(tmp_path):
    spec, data = write(tmp_path, "xgboost-classifier")
    parsed = load_spec(spec.read_bytes().replace(b"64 MiB", b"8 GiB"), file="spec.toml")

    small, large = (plan_run(parsed, [data], factor=factor, limit=1 << 30) for factor in (1.0, 10_000.0))

    assert large.rows == 10_000 * small.rows
    assert not small.warnings
    assert "the data does not fit in 1 GiB of memory" in large.warnings[0]
    assert small.memory_bytes < large.memory_bytes < 150 * large.rows


@pytest.mark.parametrize(("rows", "columns", "peak"), [(3_000, 2_000, 473.2), (30_000, 300, 460.5)])
def test_the_plan_of_lightgbm_is_not_below_measured_peaks(rows, columns, peak, monkeypatch):
    """With the peaks in MiB that ``tests/bench/plan_memory.py`` measured on two cores, from Parquet."""
    monkeypatch.setattr(lightgbm, "available_cpus", lambda: 2)
    spec = load_spec(b'model = "lightgbm-regressor"\n[columns]\ntarget = "y"\n[n_estimators]\nvalue = 20')
    planned = estimate_memory(spec, TableSize(rows, columns)).peak / 2**20
    assert peak < planned < 1.2 * peak


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_the_size_of_the_matrix_decides(suffix, tmp_path, monkeypatch):
    spec, data = write(tmp_path, "xgboost-classifier")
    if suffix == "parquet":
        pl.read_csv(data).write_parquet(data := tmp_path / "data.parquet")
    parsed = load_spec(spec.read_bytes(), file="spec.toml")
    matrix = 4 * 6 * 3_000
    for share, larger in ((2.0, False), (0.5, True)):
        monkeypatch.setattr(memory, "FEWEST", share * matrix * memory.MATRICES / 2**26)
        assert fits(parsed, measure_table([data], parsed), run_memory(parsed)) is not larger


@pytest.mark.parametrize("model", ["random-forest-classifier", "xgboost-classifier", "lightgbm-classifier"])
def test_a_larger_table_needs_more_memory_until_it_is_read_from_disk(model):
    parsed = load_spec(SPEC.replace('memory = "64 MiB"', "").format(model=model).encode())
    peaks = [
        estimate_memory(parsed, TableSize(rows, columns)).peak
        for rows, columns in ((300, 5), (100_000, 50), (1_000_000, 50), (1_000_000, 200))
    ]
    assert peaks == sorted(peaks)
    assert peaks[-1] > 2 * 4 * 1_000_000 * 200
    size = TableSize(1_000_000, 200, 1_500 << 20)
    assert not fits(parsed, size, 3 << 29)
    assert fits(parsed, size, 8 << 30)
    if model.startswith("xgboost"):
        assert estimate_memory(parsed, size, disk_limit=2 << 30).peak < 1.5 * 2**30
