"""Which engine a job's trainer is asked for."""

from __future__ import annotations

from dmls_core.errors import SpecError
from dmls_core.models import CATALOGUE, for_engine
from dmls_core.spec import Spec


def choose_engine(spec: Spec, gpus: int) -> str:
    """Return ``gpu`` or ``cpu`` for ``spec`` on a platform that offers ``gpus`` GPUs.

    What the spec asks for is taken; ``auto`` means ``gpu`` where the platform has one and the model's
    hyperparameters all exist there.
    """
    if spec.resources.engine != "auto":
        return spec.resources.engine
    definition = CATALOGUE[spec.model]
    if gpus == 0 or "gpu" not in definition.engines:
        return "cpu"
    try:
        for_engine(definition, spec.models[0].hyperparameters, "gpu")
    except SpecError:
        return "cpu"
    return "gpu"
