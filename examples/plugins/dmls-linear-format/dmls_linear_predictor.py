"""Predict with the weights of a linear model. Triton and MLflow run a copy, so it imports nothing of DMLS."""

import json

import numpy as np


def load_model(folder, threads=-1):
    """Return a function that predicts float32 rows of shape (n_rows, n_features); NaN counts as 0."""
    content = json.loads((folder / "weights.json").read_bytes())
    coefficients = np.asarray(content["coefficients"], np.float32)
    intercepts = np.asarray(content["intercepts"], np.float32)

    def predict(rows):
        scores = np.nan_to_num(np.asarray(rows, np.float32)) @ coefficients + intercepts
        if scores.shape[1] == 1:
            return scores[:, 0]
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)

    return predict
