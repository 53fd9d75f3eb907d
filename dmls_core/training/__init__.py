"""A training run: from a spec and data to a verified model with reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmls_core.training.request import TrainRequest

if TYPE_CHECKING:
    from dmls_core.training.run import train

__all__ = ["TrainRequest", "train"]


def __getattr__(name: str) -> object:
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dmls_core.training.run import train

    return train
