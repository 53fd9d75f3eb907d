"""The gpu engine on a GPU: models, parity of the export, and a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines.cuml import CumlForestEngine
from dmls_core.models.engines.xgboost import CudaXGBoostEngine
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.testing.engines import EngineSuite, kinds_of, make_data
from dmls_core.training import TrainRequest, train

NAMES = [name for name, model in CATALOGUE.items() if "gpu" in model.engines]


class TestCumlForests(EngineSuite):
    engine_class = CumlForestEngine
    values = {"max_samples": 0.5, "bootstrap": False, "max_features": 0.5}


class TestCudaXGBoost(EngineSuite):
    engine_class = CudaXGBoostEngine
    samples = {"subsample": 0.5}


def fit(name: str, kind: str, seed: int = 1, **params: object):
    model, data = CATALOGUE[name], make_data(kind, rows=2000)
    engine = load_engine("gpu", model.name)
    fitted = engine.fit(
        model,
        {"n_estimators": 60, **params},
        engine.place(data.x[: data.half]),
        engine.place(data.y[: data.half]),
        n_classes=data.n_classes,
        seed=seed,
        threads=4,
    )
    return engine, data, fitted


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_as_well_as_on_the_cpu(name: str):
    kind = kinds_of(CATALOGUE[name])[0]
    engine, data, fitted = fit(name, kind)
    model = CATALOGUE[name]
    on_cpu = load_engine("cpu", model.name).fit(
        model,
        {"n_estimators": 60},
        data.x[: data.half],
        data.y[: data.half],
        n_classes=data.n_classes,
        seed=1,
        threads=4,
    )
    unseen, truth = data.x[data.half :], data.y[data.half :]
    found, reference = fitted.predict(engine.place(unseen)), on_cpu.predict(unseen)

    if data.n_classes:
        ours, theirs = ((p.argmax(axis=1) == truth).mean() for p in (found, reference))
    else:
        ours, theirs = (1 - ((p - truth) ** 2).mean() / truth.var() for p in (found, reference))
    assert ours > theirs - 0.05


def test_the_single_precision_inference_of_the_gpu_agrees(tmp_path: Path):
    import cupy

    nvforest = pytest.importorskip("nvforest", reason="nvforest is not installed")
    engine, data, fitted = fit("random-forest-classifier", "multiclass")
    checkpoint.export(fitted.to_treelite(), tmp_path / "checkpoint.tl")

    served = nvforest.load_model(
        str(tmp_path / "checkpoint.tl"), model_type="treelite_checkpoint", device="gpu", precision="single"
    )

    own = fitted.predict(engine.place(data.x))
    check_parity(own, cupy.asnumpy(served.predict_proba(engine.place(data.x))))


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_run(name: str, tmp_path: Path):
    data = make_data(kinds_of(CATALOGUE[name])[0], rows=1500)
    target = [f"class {value}" for value in data.y] if data.n_classes else data.y
    lines = ["a,b,c,d,e,f,target"]
    lines += [",".join(map(str, [*row, value])) for row, value in zip(data.x.tolist(), target, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "spec.toml").write_text(
        f'model = "{name}"\nn_trials = 3\n[columns]\ntarget = "target"\n[n_estimators]\nmin = 20\nmax = 60\n'
    )

    result = train(
        TrainRequest(
            str(tmp_path / "spec.toml"), (str(tmp_path / "data.csv"),), str(tmp_path / "out"), engine="gpu"
        )
    )

    assert result["engine"] == "gpu"
    assert result["n_trials"] == 1  # nested search: one trial answers for every number of trees
    assert result["score"] > 0.6
