"""Serve models with Triton: the model repository, deployment, verification, clients and predictions.

Names are imported on first use: the Triton clients take 0.4 s to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.serving.batch_prediction import Predictions, Predictor, predict_file
    from dmls_core.serving.benchmark import choose_scaling
    from dmls_core.serving.client import TritonClient
    from dmls_core.serving.deployment import DeployedVersion, Deployment
    from dmls_core.serving.options import ScalingChoice, ServingOptions
    from dmls_core.serving.placement import triton_servers
    from dmls_core.serving.repository import Repository
    from dmls_core.serving.served_model import ServedModel, connect

_MODULES = {
    "DeployedVersion": "deployment",
    "Deployment": "deployment",
    "Predictions": "batch_prediction",
    "Predictor": "batch_prediction",
    "Repository": "repository",
    "ScalingChoice": "options",
    "ServedModel": "served_model",
    "ServingOptions": "options",
    "TritonClient": "client",
    "choose_scaling": "benchmark",
    "connect": "served_model",
    "predict_file": "batch_prediction",
    "triton_servers": "placement",
}

__all__ = [
    "DeployedVersion",
    "Deployment",
    "Predictions",
    "Predictor",
    "Repository",
    "ScalingChoice",
    "ServedModel",
    "ServingOptions",
    "TritonClient",
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
