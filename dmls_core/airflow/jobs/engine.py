"""Which engine a job's trainer is asked for."""

from __future__ import annotations

from dmls_core.errors import SpecError
from dmls_core.models import CATALOGUE, for_engine
from dmls_core.spec import ModelSearch, Spec


def choose_engine(spec: Spec, gpus: int) -> str:
    """Return ``gpu`` or ``cpu`` for ``spec`` on a platform that offers ``gpus`` GPUs.

    What the spec asks for is taken; ``auto`` means ``gpu`` where the platform has one and the hyperparameters
    of one of the models all exist there.
    """
    if spec.resources.engine != "auto":
        return spec.resources.engine
    return "gpu" if gpus and any(map(_on_gpu, spec.models)) else "cpu"


def trainer_engine(spec: Spec, engine: str) -> str:
    """Return what the trainer is told, which runs where ``engine`` is.

    Of several models on a GPU's machine, each takes the engine that can do what the spec asks of it.
    """
    return "auto" if engine == "gpu" and len(spec.models) > 1 and spec.resources.engine == "auto" else engine


def _on_gpu(search: ModelSearch) -> bool:
    definition = CATALOGUE[search.name]
    if "gpu" not in definition.engines:
        return False
    try:
        for_engine(definition, search.hyperparameters, "gpu")
    except SpecError:
        return False
    return True
