"""Export to Treelite, the Triton repository, deploy, verify, roll back, predict.

Names are imported when they are first used: the Triton clients cost 0.4 s.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.serving.batch_prediction import Predictions, Predictor, predict_file
    from dmls_core.serving.benchmark import measure
    from dmls_core.serving.client import TritonClient, triton_servers
    from dmls_core.serving.deployment import Deployment, deploy, go_live, rollback, rollback_to, stage
    from dmls_core.serving.options import Choice, ServingOptions
    from dmls_core.serving.repository import Repository
    from dmls_core.serving.served_model import ServedModel, connect
    from dmls_core.serving.verification import verify

__all__ = [
    "Choice",
    "Deployment",
    "Predictions",
    "Predictor",
    "Repository",
    "ServedModel",
    "ServingOptions",
    "TritonClient",
    "connect",
    "deploy",
    "go_live",
    "measure",
    "predict_file",
    "rollback",
    "rollback_to",
    "stage",
    "triton_servers",
    "verify",
]

_MODULES = {
    "Choice": "options",
    "Deployment": "deployment",
    "Predictions": "batch_prediction",
    "Predictor": "batch_prediction",
    "Repository": "repository",
    "ServedModel": "served_model",
    "ServingOptions": "options",
    "TritonClient": "client",
    "connect": "served_model",
    "deploy": "deployment",
    "go_live": "deployment",
    "measure": "benchmark",
    "predict_file": "batch_prediction",
    "rollback": "deployment",
    "rollback_to": "deployment",
    "stage": "deployment",
    "triton_servers": "client",
    "verify": "verification",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES[name]}")
    value: object = getattr(module, name)
    return value
