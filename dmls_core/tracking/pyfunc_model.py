"""The model that MLflow loads: the user's columns in, the user's labels out.

MLflow stores this file with every logged model and runs it to load the model, without DMLS installed. The
encoder and the prediction are in ``dmls_model/`` next to it.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext


class TableModel(PythonModel):
    """A model behind its encoder."""

    def load_context(self, context: PythonModelContext) -> None:
        """Read the model and the encoder that was fitted with it.

        Raises:
            ValueError: ``DMLS_SIGNERS`` is set, and none of its keys signed these files.
        """
        # Another model's code, perhaps of another release, may be imported under the same name.
        for name in [name for name in sys.modules if name.partition(".")[0] == "dmls_model"]:
            del sys.modules[name]
        folder = Path(context.artifacts["encoder"]).parent
        if signers := os.environ.get("DMLS_SIGNERS"):
            signature = import_module("dmls_model.signature")
            if problem := signature.problem(folder, signature.public_keys(signers)):
                raise ValueError(f"the model is not as a trainer signed it: {problem}")
        # The model's own code is on the path only now.
        encoder = import_module("dmls_model.encoder").Encoder
        self.encoder = encoder.from_json(json.loads(Path(context.artifacts["encoder"]).read_bytes()))
        self.find_notes = import_module("dmls_model.row_notes").find_notes
        self.predict_rows = import_module("dmls_model.predictor").load_model(folder)

    def predict(
        self,
        context: PythonModelContext,  # noqa: ARG002  MLflow passes it
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> pd.DataFrame:
        """Return ``prediction`` and, for a classification, ``probability_<label>`` per label.

        Warn of rows unlike those of the training; with ``params={"strict": True}``, raise ValueError.
        """
        rows = self.encoder.transform(model_input)
        notes = self.find_notes(self.encoder, model_input, rows)
        if notes.notes and (params or {}).get("strict"):
            raise notes.as_error()
        if notes.notes:
            first = notes.notes[0]
            warnings.warn(
                f"rows unlike those of the training: {len(notes.by_row()):,}; row {first.row + 1}: {first}",
                stacklevel=2,
            )
        labels = self.encoder.target.labels
        outputs = np.empty(0 if labels is None else (0, len(labels)), np.float32)
        if len(rows):
            outputs = self.predict_rows(rows)
        if labels is None:
            return pd.DataFrame({"prediction": outputs}, index=model_input.index)
        prediction = self.encoder.decode(outputs.argmax(axis=1))
        probabilities = {f"probability_{label}": outputs[:, i] for i, label in enumerate(labels)}
        return pd.DataFrame({"prediction": prediction, **probabilities}, index=model_input.index)


set_model(TableModel())
