"""Serve models with Triton: the model repository, deployment, verification, clients and predictions.

Names are imported on first use: the Triton clients take 0.4 s to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.serving.deployment.benchmark import choose_scaling
    from dmls_core.serving.deployment.deployment import DeployedVersion, Deployment
    from dmls_core.serving.predict.connect import TritonModel, connect
    from dmls_core.serving.predict.predictor import Predictions, Predictor, predict_file
    from dmls_core.serving.repository.options import ScalingChoice, ServingOptions
    from dmls_core.serving.repository.repository import Repository
    from dmls_core.serving.triton.client import TritonClient
    from dmls_core.serving.triton.placement import triton_servers

_MODULES = {
    "DeployedVersion": "deployment.deployment",
    "Deployment": "deployment.deployment",
    "Predictions": "predict.predictor",
    "Predictor": "predict.predictor",
    "Repository": "repository.repository",
    "ScalingChoice": "repository.options",
    "ServingOptions": "repository.options",
    "TritonClient": "triton.client",
    "TritonModel": "predict.connect",
    "choose_scaling": "deployment.benchmark",
    "connect": "predict.connect",
    "predict_file": "predict.predictor",
    "triton_servers": "triton.placement",
}

__all__ = [
    "DeployedVersion",
    "Deployment",
    "Predictions",
    "Predictor",
    "Repository",
    "ScalingChoice",
    "ServingOptions",
    "TritonClient",
    "TritonModel",
    "choose_scaling",
    "connect",
    "predict_file",
    "triton_servers",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value
