"""Errors of registered engines and metrics name what is wrong, and the packages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmls_core import extensions
from dmls_core.errors import PlatformError
from dmls_core.models import METRICS, catalogue, metrics
from dmls_core.models.engines.lightgbm import LightGBMEngine
from dmls_core.models.engines.xgboost import XGBoostEngine


@pytest.fixture
def register(monkeypatch):
    """Return a function that replaces what is registered."""

    def register(**objects):
        monkeypatch.setattr(extensions, "names", lambda _group: tuple(sorted(objects)))
        monkeypatch.setattr(extensions, "load", lambda _group, name: objects[name])
        monkeypatch.setattr(
            extensions,
            "installed",
            lambda: [
                extensions.Extension("dmls.engines", name, f"package-{name} 1.0", "") for name in objects
            ],
        )
        catalogue._engines.cache_clear()

    yield register
    monkeypatch.undo()
    catalogue._engines.cache_clear()


def test_two_engines_of_one_model_and_device(register):
    class Other(XGBoostEngine):
        name = "other"

    register(xgboost=XGBoostEngine, other=Other)
    with pytest.raises(PlatformError) as raised:
        catalogue._models()
    assert "two engines fit xgboost-classifier on the cpu" in str(raised.value)
    assert "package-other 1.0" in str(raised.value)
    assert "package-xgboost 1.0" in str(raised.value)


def test_two_definitions_of_one_model(register):
    class Gpu(LightGBMEngine):
        name, device = "gpu", "gpu"
        models = tuple(replace(model, missing_values=False) for model in LightGBMEngine.models)

    register(lightgbm=LightGBMEngine, gpu=Gpu)
    with pytest.raises(PlatformError, match="define the model lightgbm-classifier differently"):
        catalogue._models()


def test_an_engine_for_another_device_joins_the_model(register):
    class Gpu(LightGBMEngine):
        name, device = "gpu", "gpu"

    register(lightgbm=LightGBMEngine, gpu=Gpu)
    assert catalogue._models()["lightgbm-classifier"].engines == ("cpu", "gpu")


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (object(), "is not a subclass of dmls_core.models.engines.Engine"),
        (type("Abstract", (catalogue.Engine,), {}), "does not define fit"),
        (type("Bare", (catalogue.Engine,), {"fit": None}), "lacks the attributes name, device, models"),
        (LightGBMEngine, "has the name 'lightgbm', not that of its entry point"),
        (type("Tpu", (LightGBMEngine,), {"name": "mine", "device": "tpu"}), "has the device 'tpu'"),
    ],
)
def test_what_is_not_an_engine(register, engine, words):
    register(mine=engine)
    with pytest.raises(PlatformError, match=words) as raised:
        catalogue._engines()
    assert "'mine' (package-mine 1.0)" in str(raised.value)


@pytest.mark.parametrize(
    ("registered", "words"),
    [
        ({"mine": max}, "the metric 'mine' is not a dmls_core.models.metrics.Metric"),
        ({"mine": METRICS["mae"]}, "the metric 'mine' has the name 'mae'"),
        ({"mae": METRICS["mae"], "mean_absolute_error": None}, "are both called 'mean_absolute_error'"),
    ],
)
def test_what_is_not_a_metric(register, registered, words):
    if "mean_absolute_error" in registered:
        registered |= {
            "mean_absolute_error": replace(METRICS["rmse"], name="mean_absolute_error", aliases=())
        }
    register(**registered)
    with pytest.raises(PlatformError, match=words):
        metrics._registered()
