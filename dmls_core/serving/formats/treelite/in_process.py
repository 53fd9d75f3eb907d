"""A Treelite model in the process of the table endpoint: few rows need no request to Triton then.

It calls Treelite's C library, in float32 as the FIL backend does on a CPU. Python's ``treelite`` takes 0.2 s
to import, as it imports SciPy. The file is copied next to the endpoint's code, and imports nothing of DMLS.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

_CHECKPOINT = "checkpoint.tl"

REQUIRES = "treelite"
"""Package that Triton's Python must have."""

LARGEST_ROWS = 32
"""From more rows on, the threads of the FIL backend are faster than this process."""

LARGEST_FILE = 64 << 20
"""Largest checkpoint in bytes: each process of the table endpoint holds a copy."""

PROOF_ROWS = 64
"""Rows that the model in Triton must have answered in the same way, bit for bit, before this one answers."""


def open_model(folder: Path, n_features: int) -> InProcessModel | None:
    """Read a version's checkpoint; ``None`` if it is too large or not here, or Treelite is not installed."""
    path = folder / _CHECKPOINT
    try:
        if path.stat().st_size > LARGEST_FILE:
            return None
        package = importlib.util.find_spec("treelite")
        if package is None or package.origin is None:
            return None
        library = ctypes.CDLL(str(Path(package.origin).parent / "lib" / "libtreelite.so"))
        return InProcessModel(library, path, n_features)
    except (OSError, AttributeError, ValueError):
        return None


class InProcessModel:
    """A model that must prove that it predicts as the one in Triton; use it in one thread."""

    def __init__(self, library: Any, path: Path, n_features: int) -> None:  # noqa: ANN401 - a C library
        """Read a checkpoint; ValueError if Treelite cannot, or it has another number of features."""
        self._library = library
        self._library.TreeliteGetLastError.restype = ctypes.c_char_p
        self._model, self._config = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("DeserializeModelFromFile", str(path).encode(), ctypes.byref(self._model))
        options = json.dumps({"predict_type": "default", "nthread": 1}).encode()
        self._call("GTILParseConfig", options, ctypes.byref(self._config))
        count = ctypes.c_int()
        self._call("QueryNumFeature", self._model, ctypes.byref(count))
        if count.value != n_features:
            raise ValueError(f"{path} has {count.value} features, expected {n_features}")
        shape, n_dims = ctypes.POINTER(ctypes.c_uint64)(), ctypes.c_uint64()
        one = ctypes.c_uint64(1)
        outputs = ctypes.byref(shape), ctypes.byref(n_dims)
        self._call("GTILGetOutputShape", self._model, one, self._config, *outputs)
        self._outputs = int(np.prod([shape[i] for i in range(n_dims.value)]))
        self._unproven = PROOF_ROWS
        self._features = n_features

    def answers(self, n_rows: int) -> bool:
        """Return whether this model may answer ``n_rows`` alone."""
        return n_rows <= LARGEST_ROWS and self._unproven <= 0

    def agrees(self, rows: Any, outputs: Any) -> bool:  # noqa: ANN401 - arrays
        """Compare the answers of the model in Triton with its own, until it has proven itself."""
        if self._unproven <= 0:
            return True
        rows, outputs = rows[: self._unproven], outputs[: self._unproven]
        self._unproven -= len(rows)
        return np.array_equal(self.predict(rows, outputs.shape[1]), outputs)

    def predict(self, rows: Any, n_outputs: int) -> Any:  # noqa: ANN401 - arrays
        """Return float32 predictions (n_rows, n_outputs) of float32 rows (n_rows, n_features).

        Rows of another shape raise ValueError: Treelite would read beyond them.
        """
        if rows.shape[1:] != (self._features,) or rows.dtype != np.float32 or not rows.flags.c_contiguous:
            raise ValueError(f"rows of shape {rows.shape}, expected {self._features} float32 features")
        predictions = np.zeros((len(rows), self._outputs), np.float32)
        self._call(
            "GTILPredict",
            self._model,
            rows.ctypes.data_as(ctypes.c_void_p),
            b"float32",
            ctypes.c_uint64(len(rows)),
            predictions.ctypes.data_as(ctypes.c_void_p),
            self._config,
        )
        # The model has the probability of the second of two classes alone.
        return (
            np.hstack([1 - predictions, predictions]) if (self._outputs, n_outputs) == (1, 2) else predictions
        )

    def _call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - C values
        if getattr(self._library, f"Treelite{name}")(*arguments):
            raise ValueError(self._library.TreeliteGetLastError().decode(errors="replace"))

    def __del__(self) -> None:
        self._library.TreeliteGTILDeleteConfig(self._config)
        self._library.TreeliteFreeModel(self._model)
