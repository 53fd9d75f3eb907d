"""Export to Treelite, the Triton repository, deploy, verify, roll back, predict.

Names are imported when they are first used: the Triton clients cost 0.4 s.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.serving.client import TritonClient
    from dmls_core.serving.deployment import Deployment, deploy, rollback_to
    from dmls_core.serving.prediction_file import predict_file
    from dmls_core.serving.predictor import Predictions, Predictor
    from dmls_core.serving.repository import Repository
    from dmls_core.serving.verification import verify

__all__ = [
    "Deployment",
    "Predictions",
    "Predictor",
    "Repository",
    "TritonClient",
    "deploy",
    "predict_file",
    "rollback_to",
    "verify",
]

_MODULES = {
    "Deployment": "deployment",
    "Predictions": "predictor",
    "Predictor": "predictor",
    "Repository": "repository",
    "TritonClient": "client",
    "deploy": "deployment",
    "predict_file": "prediction_file",
    "rollback_to": "deployment",
    "verify": "verification",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES[name]}")
    value: object = getattr(module, name)
    return value
