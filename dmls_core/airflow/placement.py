"""Choose the engine and the pool of a job's search."""

from __future__ import annotations

from typing import Any

from dmls_core.errors import SpecError
from dmls_core.models import CATALOGUE, for_engine
from dmls_core.spec import ModelSearch, Spec

CPU_POOL = "dmls_cpu"
GPU_POOL = "dmls_gpu"


def choose_engine(spec: Spec, gpus: int) -> str:
    """Return the engine for ``spec`` on a platform that offers ``gpus`` GPUs: ``gpu`` or ``cpu``.

    ``auto`` means ``gpu`` if there is a GPU and its engine supports a model with all its hyperparameters.
    """
    if spec.resources.engine != "auto":
        return spec.resources.engine
    return "gpu" if gpus and any(map(_runs_on_gpu, spec.models)) else "cpu"


def trainer_engine(spec: Spec, engine: str) -> str:
    """Return the trainer's ``--engine``; with several models and ``auto`` on a GPU it chooses for each."""
    return "auto" if engine == "gpu" and len(spec.models) > 1 and spec.resources.engine == "auto" else engine


def choose_pool(spec: dict[str, Any], gpus: int) -> str:
    """Return the Airflow pool for the search of ``spec`` (JSON)."""
    engine = spec["resources"]["engine"]
    if engine == "auto" and gpus > 0:
        engine = choose_engine(Spec.from_json(spec), gpus)
    return GPU_POOL if engine == "gpu" else CPU_POOL


def _runs_on_gpu(search: ModelSearch) -> bool:
    definition = CATALOGUE[search.name]
    if "gpu" not in definition.engines:
        return False
    try:
        for_engine(definition, search.hyperparameters, "gpu")
    except SpecError:
        return False
    return True
