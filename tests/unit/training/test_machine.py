"""Which engine and how many CPUs: what this machine has, and what containers allow."""

from __future__ import annotations

import pytest

from dmls_core.errors import EngineUnavailableError, SpecError
from dmls_core.hardware import Gpu
from dmls_core.models import CATALOGUE, engine_class
from dmls_core.spec import Choice
from dmls_core.training import request
from dmls_core.training.pipeline import versions
from dmls_core.training.request import choose_engine

FOREST = CATALOGUE["random-forest-classifier"]
H200 = Gpu(0, "NVIDIA H200", 140 << 30, (9, 0))
K80 = Gpu(0, "Tesla K80", 12 << 30, (3, 7))


@pytest.fixture
def machine(monkeypatch):
    def build(gpus: list[Gpu], missing: list[str] = []) -> None:  # noqa: B006 - never changed
        monkeypatch.setattr(request, "find_gpus", lambda: gpus)
        for model in ("random-forest-classifier", "xgboost-classifier"):
            monkeypatch.setattr(engine_class("gpu", model), "missing_packages", lambda: missing)

    return build


def test_auto_takes_a_gpu_that_can_do_what_is_asked(machine):
    machine([H200])

    engine, space = choose_engine("auto", FOREST, {"criterion": Choice(values=("entropy", "log_loss"))})

    assert engine == "gpu"
    assert space == {"criterion": Choice(values=("entropy",))}


@pytest.mark.parametrize(
    ("gpus", "missing", "hyperparameters", "model"),
    [
        ([], [], {}, "random-forest-classifier"),
        ([K80], [], {}, "random-forest-classifier"),
        ([H200], ["cuml"], {}, "random-forest-classifier"),
        ([H200], [], {"ccp_alpha": Choice(values=(0.0, 0.1))}, "random-forest-classifier"),
        ([H200], [], {}, "lightgbm-classifier"),
    ],
)
def test_auto_takes_the_cpu_otherwise(machine, gpus, missing, hyperparameters, model):
    machine(gpus, missing)

    assert choose_engine("auto", CATALOGUE[model], hyperparameters) == ("cpu", hyperparameters)


@pytest.mark.parametrize(
    ("gpus", "missing", "reason"),
    [
        ([], [], "no NVIDIA GPU"),
        ([K80], [], r"Tesla K80 is too old \(compute capability 3.7\)"),
        ([H200], ["cuml", "cupy"], "not installed: cuml, cupy"),
    ],
)
def test_gpu_asked_for_and_not_to_be_had(machine, gpus, missing, reason):
    machine(gpus, missing)

    with pytest.raises(EngineUnavailableError, match=reason):
        choose_engine("gpu", FOREST, {})


def test_gpu_asked_for_what_it_cannot_do(machine):
    machine([H200])

    with pytest.raises(SpecError, match="lightgbm-classifier has no gpu engine"):
        choose_engine("gpu", CATALOGUE["lightgbm-classifier"], {})


def test_versions_name_the_library_whatever_its_build():
    found = versions(("xgboost", "numpy", "not-there"))

    assert set(found) == {"python", "dmls", "xgboost", "numpy"}
    assert all(found.values())
