"""Which engine fits the model here."""

from __future__ import annotations

from collections.abc import Mapping

from dmls_core.errors import EngineUnavailableError, SpecError
from dmls_core.hardware import find_gpus
from dmls_core.models import engine_class, for_engine
from dmls_core.spec import Hyperparameter, ModelDefinition
from dmls_core.training.request import EngineChoice


def choose_engine(
    wanted: EngineChoice, model: ModelDefinition, hyperparameters: Mapping[str, Hyperparameter]
) -> tuple[str, dict[str, Hyperparameter]]:
    """Return the engine and the space that it really searches.

    ``auto`` is the GPU where there is one that can do all that the spec asks, else the CPU.

    Raises:
        SpecError: the engine asked for cannot fit the model, or cannot do what a hyperparameter asks.
        EngineUnavailableError: it could, but not on this machine; the message says what is missing.
    """
    if wanted == "cpu":
        return "cpu", for_engine(model, hyperparameters, "cpu")
    try:
        space = for_engine(model, hyperparameters, "gpu")
    except SpecError:
        if wanted == "gpu":
            raise
        return "cpu", for_engine(model, hyperparameters, "cpu")
    if reason := missing_for_gpu(model):
        if wanted == "gpu":
            raise EngineUnavailableError(f"the gpu engine cannot run here: {reason}")
        return "cpu", for_engine(model, hyperparameters, "cpu")
    return "gpu", space


def missing_for_gpu(model: ModelDefinition) -> str:
    """Say what the gpu engine lacks on this machine; empty if nothing."""
    gpus = find_gpus()
    if not gpus:
        return "CUDA's driver offers no NVIDIA GPU to this process"
    if not any(gpu.usable for gpu in gpus):
        return (
            f"{gpus[0].name} is too old (compute capability {gpus[0].capability[0]}.{gpus[0].capability[1]})"
        )
    if missing := engine_class("gpu", model.name).missing_packages():
        return f"packages are not installed: {', '.join(missing)}"
    return ""
