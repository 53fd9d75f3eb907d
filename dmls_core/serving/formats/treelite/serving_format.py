"""The serving format ``treelite``: trees as Treelite checkpoints behind Triton's FIL backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.serving.formats.base import ServingFormat, WrittenModel, module_source
from dmls_core.serving.formats.treelite.fil_backend import DESCRIPTIONS, FIL
from dmls_core.serving.triton.backends import BackendKind
from dmls_core.serving.triton.model_config import ModelShape

if TYPE_CHECKING:
    import treelite

    from dmls_core.models.engines import Fitted

_CHECKPOINT = "checkpoint.tl"

_FIRST_HASH = "checkpoint_sha256"
"""Key in ``model.json`` of models of the first releases."""


class TreeliteFormat(ServingFormat):
    """Trees in a Treelite checkpoint."""

    name = "treelite"
    backend = FIL
    files = (_CHECKPOINT,)
    predictor = "dmls_core.serving.formats.treelite.gtil"
    packages = ("treelite",)
    in_process = "dmls_core.serving.formats.treelite.in_process"

    def export(self, fitted: Fitted, folder: Path, *, threads: int) -> WrittenModel:
        """Write the checkpoint and the size of its trees; predict as the FIL backend does on a CPU."""
        from dmls_core.serving.formats.treelite import checkpoint
        from dmls_core.serving.formats.treelite.forest_size import SIZE_FILE, forest_size

        model = checkpoint.export(fitted.to_treelite(), folder / _CHECKPOINT)
        (folder / SIZE_FILE).write_text(json.dumps(forest_size(model)))
        predict = partial(checkpoint.predict, model, threads=threads)
        return WrittenModel(predict, partial(checkpoint.tolerance, model))

    def reference(self, folder: Path, rows: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """Predict with nvForest, FIL's code on a GPU, if it is installed."""
        from dmls_core.serving.formats.treelite import checkpoint

        return checkpoint.predict_as_fil(folder / _CHECKPOINT, rows)

    def model_bytes(self, fitted: Fitted) -> int:
        """Return the size of the checkpoint."""
        return len(fitted.to_treelite().serialize_bytes())

    def trees(self, folder: Path) -> treelite.Model:
        """Return the model itself."""
        from dmls_core.serving.formats.treelite import checkpoint

        return checkpoint.load(folder / _CHECKPOINT)

    def inspect(self, folder: Path) -> dict[str, Any]:
        """Check the structure of every tree."""
        from dmls_core.serving.formats.treelite.checkpoint_check import inspect

        return inspect(folder / _CHECKPOINT)

    def recorded_hashes(self, model_json: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the hash, which models of the first releases record under a key of its own or not at all."""
        first = {_CHECKPOINT: model_json[_FIRST_HASH]} if _FIRST_HASH in model_json else {}
        return {**first, **super().recorded_hashes(model_json)}

    def size_hint(self, folder: Path, size: int, limit: int) -> str:
        """Return the size by depth, and a depth that fits."""
        from dmls_core.serving.formats.treelite.forest_size import size_hint

        return size_hint(folder, size, limit)

    def parameters(self, shape: ModelShape) -> Mapping[str, str]:
        """Return FIL's parameters.

        FIL requires ``output_class`` up to release 25.08, and prefers it to ``is_classifier`` from 25.09 on;
        both reject a classifier without a threshold. Never written: ``use_experimental_optimizations``, with
        which FIL from 25.09 on answers XGBoost's two classes wrongly.
        """
        classifier = str(shape.classifier).lower()
        return {
            "model_type": "treelite_checkpoint",
            "predict_proba": classifier,
            "output_class": classifier,
            "is_classifier": classifier,
            "threshold": "0.5",
            "storage_type": "AUTO",
        }

    def stand_in(self) -> Mapping[str, Path]:
        """Return a FIL backend in Python."""
        package = "dmls_core.serving.formats.treelite"
        return {
            "model.py": module_source(f"{package}.fil_stand_in"),
            "gtil.py": module_source(f"{package}.gtil"),
            "private_memory.py": module_source("dmls_core.serving.endpoint.private_memory"),
        }

    def describe_backend(self, kind: BackendKind) -> str:
        """Say whether the FIL backend is NVIDIA's."""
        return DESCRIPTIONS[kind]

    def write_onnx(self, folder: Path, path: Path, metadata: Mapping[str, str]) -> float:
        """Write the trees as one operator of ONNX."""
        from dmls_core.serving.formats.treelite.onnx_export import write_onnx

        return write_onnx(folder, path, metadata)
