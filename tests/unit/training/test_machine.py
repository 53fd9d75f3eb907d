"""Which engine and how many CPUs: what this machine has, and what containers allow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dmls_core.compute import Gpu, available_cpus, find_gpus
from dmls_core.errors import EngineUnavailableError, SpecError
from dmls_core.models import CATALOGUE
from dmls_core.spec import Choice
from dmls_core.training import engine_choice
from dmls_core.training.engine_choice import choose_engine
from dmls_core.training.versions import versions

FOREST = CATALOGUE["random-forest-classifier"]
H200 = Gpu(0, "NVIDIA H200", 140 << 30, (9, 0))
K80 = Gpu(0, "Tesla K80", 12 << 30, (3, 7))


@pytest.fixture
def machine(monkeypatch):
    def build(gpus: list[Gpu], missing: list[str] = []) -> None:  # noqa: B006 - never changed
        monkeypatch.setattr(engine_choice, "find_gpus", lambda: gpus)
        monkeypatch.setattr(engine_choice, "missing_packages", lambda *_: missing)

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


def test_finding_gpus_needs_no_gpu():
    assert all(isinstance(gpu, Gpu) for gpu in find_gpus())


AFFINITY = len(os.sched_getaffinity(0))


def cgroup(tmp_path: Path, membership: str, files: dict[str, str]) -> int:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "membership").write_text(membership)
    return available_cpus(tmp_path / "cgroup", tmp_path / "membership")


V1 = "cgroup/cpu/cpu.cfs_quota_us", "cgroup/cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("0::/\n", {"cgroup/cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cgroup/cpu.max": "max 100000\n"}, AFFINITY),
        ("0::/a/b\n", {"cgroup/a/cpu.max": "50000 100000\n", "cgroup/a/b/cpu.max": "max 100000"}, 1),
        ("3:cpu,cpuacct:/x\n0::/\n", {V1[0]: "-1", V1[1]: "100"}, AFFINITY),
        ("3:cpu,cpuacct:/x\n", {V1[0]: "90", V1[1]: "100"}, 1),
        ("0::/\n", {"cgroup/cpu.max": "10000000 100000\n"}, AFFINITY),
        ("0::/\n", {"cgroup/cpu.max": "broken\n"}, AFFINITY),
    ],
)
def test_cpus_are_cut_to_the_quota(tmp_path: Path, membership: str, files: dict[str, str], cpus: int):
    assert cgroup(tmp_path, membership, files) == cpus


def test_versions_name_the_library_whatever_its_build():
    found = versions(("xgboost", "numpy", "not-there"))

    assert set(found) == {"python", "dmls", "xgboost", "numpy"}
    assert all(found.values())


@pytest.mark.parametrize(
    ("value", "wanted"), [("1", 1), ("1,2", 1), ("999", None), ("0", None), ("many", None)]
)
def test_openmp_s_own_limit_is_kept(monkeypatch, value: str, wanted: int | None):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    unlimited = available_cpus()
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert available_cpus() == (wanted or unlimited)
