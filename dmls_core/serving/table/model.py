"""The table endpoint: a table's own columns in, label and probabilities out. Run by Triton's Python backend.

A copy of this file lies in every version of ``<team>.<job>.table``, beside a copy of ``encoder.py`` (that of
the training) and the version's ``encoder.json``, which is data. It imports nothing else of DMLS.

Rows are encoded here and handed to the forest ``<team>.<job>`` within the server. The configuration names the
versions that may be live, and the encoder of the very version that answers is used: when the forest changes
from one version to another, this endpoint changes with it, without being loaded again.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

ROUNDS = 3
"""How often all versions are asked: one may go while another comes."""


class TritonPythonModel:
    """One instance of the endpoint of one model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the encoder of every version that may be live; an old one may have been removed."""
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        self.forest = parameters["forest"]
        folder = Path(args["model_repository"])
        code = _encoder_code(folder / args["model_version"] / "encoder.py")
        first, *others = (about["version"] for about in json.loads(parameters["versions"]))
        files = {number: folder / str(number) / "encoder.json" for number in (first, *others)}
        self.versions = [
            Version(code, number, json.loads(path.read_bytes()))
            for number, path in files.items()
            if number == first or path.is_file()
        ]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer requests, all their rows by one call of the forest."""
        tables = [_columns(request) for request in requests]
        refused: str = ""
        for _ in range(ROUNDS):
            unfit: list[Any] = []
            for version in list(self.versions):
                encoded = [version.encode(table) for table in tables]
                if all(isinstance(part, str) for part in encoded):
                    unfit = unfit or encoded  # unless another version is live, whose columns they are
                    continue
                outputs, refused = version.ask(self.forest, encoded)
                if outputs is None:
                    continue
                if version is not self.versions[0]:  # the next requests ask it first
                    self.versions = [version, *(other for other in self.versions if other is not version)]
                return version.responses(encoded, outputs)
            if unfit:
                return [_failed(error) for error in unfit]
        return [_failed(refused, pb_utils.TritonError.UNAVAILABLE) for _ in requests]


class Version:
    """A version of the model: its encoder and its labels."""

    def __init__(self, code: Any, number: int, encoder: dict[str, Any]) -> None:  # noqa: ANN401  a module
        self.number = number
        self.encoder = code.Encoder.from_json(encoder)
        labels = self.encoder.target.labels
        self.labels = None if labels is None else np.array([label.encode() for label in labels], dtype=object)
        self.columns = [
            Category(code, feature) if isinstance(feature, code.CategoryFeature) else feature
            for feature in self.encoder.features
        ]

    def encode(self, table: dict[str, Any] | str) -> Any:  # noqa: ANN401
        """Return the matrix of a table, or a text that says what is wrong with it."""
        if isinstance(table, str):
            return table
        if missing := [name for name in self.encoder.feature_names if name not in table]:
            return f"columns are missing: {', '.join(map(repr, missing))}"
        matrix = np.empty((len(next(iter(table.values()))), len(self.columns)), dtype=np.float32)
        try:
            for position, column in enumerate(self.columns):
                matrix[:, position] = column.encode(table[column.name])
        except ValueError as error:
            return str(error)
        return matrix

    def ask(self, forest: str, encoded: list[Any]) -> tuple[Any, str]:
        """Return the forest's outputs for all rows; or None and why Triton does not serve this version."""
        good = [part for part in encoded if not isinstance(part, str)]
        request = pb_utils.InferenceRequest(
            model_name=forest,
            model_version=self.number,
            requested_output_names=["output__0"],
            inputs=[pb_utils.Tensor("input__0", np.concatenate(good) if len(good) > 1 else good[0])],
            # On a GPU the forest's answer would stay there.
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        response = request.exec()
        if response.has_error():
            return None, response.error().message()
        outputs = pb_utils.get_output_tensor_by_name(response, "output__0").as_numpy()
        return outputs.reshape(sum(map(len, good)), -1), ""

    def responses(self, encoded: list[Any], outputs: Any) -> list[Any]:  # noqa: ANN401
        """Deal the outputs out to the requests that they belong to."""
        answers, start = [], 0
        for part in encoded:
            if isinstance(part, str):
                answers.append(_failed(part))
            else:
                answers.append(self._response(outputs[start : start + len(part)]))
                start += len(part)
        return answers

    def _response(self, outputs: Any) -> Any:  # noqa: ANN401
        version = pb_utils.Tensor("version", np.full((len(outputs), 1), self.number, np.int64))
        if self.labels is None:
            tensors = [pb_utils.Tensor("value", np.ascontiguousarray(outputs))]
        else:
            labels = self.labels[outputs.argmax(axis=1)].reshape(-1, 1)
            tensors = [
                pb_utils.Tensor("label", labels),
                pb_utils.Tensor("probabilities", np.ascontiguousarray(outputs)),
            ]
        return pb_utils.InferenceResponse([*tensors, version])


class Category:
    """A feature of categories as ``encoder.py`` encodes it, quick for texts that are known."""

    def __init__(self, code: Any, feature: Any) -> None:  # noqa: ANN401
        self.name = feature.name
        self._feature = feature
        self._known = {
            text: float(number)
            for number, text in enumerate(feature.categories)
            if code.category_text(text) == text
        }

    def encode(self, values: Any) -> Any:  # noqa: ANN401
        """Return the codes of texts, float32 of shape (n_rows,)."""
        if values.dtype != object:
            return self._feature.encode(values)
        codes = [self._known.get(text, math.nan) for text in values]
        encoded = np.array(codes, dtype=np.float32)
        if (other := np.isnan(encoded)).any():
            encoded[other] = self._feature.encode(values[other])
        return encoded


def _encoder_code(path: Path) -> Any:  # noqa: ANN401
    """Import the training's encoder from the file beside this one."""
    spec = importlib.util.spec_from_file_location("dmls_table_encoder", path)
    if spec is None or spec.loader is None:
        raise pb_utils.TritonModelException(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def _columns(request: Any) -> dict[str, Any] | str:  # noqa: ANN401
    """Return a request's columns by name, each of shape (n_rows,); or what is wrong with one."""
    columns: dict[str, Any] = {}
    for tensor in request.inputs():
        values = tensor.as_numpy().reshape(-1)
        if values.dtype == object:
            try:
                texts = [text.decode() for text in values]
            except UnicodeDecodeError as error:
                return f"column {tensor.name()!r} holds a text that is not UTF-8: {error.reason}"
            values = np.empty(len(texts), dtype=object)
            values[:] = texts
        columns[tensor.name()] = values
    return columns


def _failed(message: str, code: Any = None) -> Any:  # noqa: ANN401
    error = pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG if code is None else code)
    return pb_utils.InferenceResponse(error=error)
