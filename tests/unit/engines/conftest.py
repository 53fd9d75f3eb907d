"""Small data sets of every kind of task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from dmls_core.spec.definitions import ModelDefinition


@dataclass(frozen=True)
class Data:
    x: NDArray[np.float32]
    y: NDArray
    n_classes: int

    @property
    def half(self) -> int:
        return len(self.x) * 3 // 4


def make_data(kind: str, rows: int = 240, seed: int = 0) -> Data:
    """``binary``, ``multiclass`` or ``regression``, with ``-nan`` for missing values.

    Column 0 holds the codes of a category with unknown ones (-1), column 1 values a float32's width apart.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 6)).astype(np.float32)
    x[:, 0] = rng.integers(-1, 5, rows)
    x[:, 1] = np.nextafter(np.float32(1), np.float32(2), dtype=np.float32) * rng.integers(1, 4, rows)
    signal = x[:, 2] + (x[:, 0] == 2) - x[:, 3] * x[:, 4] + rng.normal(scale=0.3, size=rows)
    task = kind.removesuffix("-nan")
    if task == "regression":
        y, n_classes = 1000 * signal.astype(np.float64), 0
    else:
        n_classes = 2 if task == "binary" else 4
        y = np.digitize(signal, np.quantile(signal, np.linspace(0, 1, n_classes + 1)[1:-1])).astype(np.int32)
    if kind.endswith("-nan"):
        x[rng.random(x.shape) < 0.15] = np.nan
    return Data(x, y, n_classes)


def kinds_of(model: ModelDefinition) -> list[str]:
    """The kinds of data that a model can be fitted on."""
    kinds = ["regression"] if model.task == "regression" else ["binary", "multiclass"]
    return kinds + [f"{kind}-nan" for kind in kinds] * model.missing_values


@pytest.fixture
def data() -> type[Data]:
    return Data
