"""The table endpoint: a table's own columns in, label and probabilities out. Run by Triton's Python backend.

Every version folder of ``<team>.<job>.table`` holds copies of this file and of the others that it imports,
and the version's ``encoder.json``, which is data. It imports nothing else of DMLS.

Rows are encoded here and handed to the forest ``<team>.<job>`` within the server. Few rows are predicted
here, with a copy of the forest, if the server serves its version. The configuration names the versions that
may be live, and the encoder of the very version that answers is used: when the forest changes version, this
endpoint changes with it, without being loaded again.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import struct
import sys
import zlib
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

ROUNDS = 3
"""Rounds through all versions: one may disappear while another appears."""

LOG_FOLDER = "DMLS_INFERENCE_LOG"
"""Environment variable with the folder of the inference log; without it nothing is logged."""
OWN_REQUESTS = "dmls."
"""Prefix of the ids of DMLS's own requests, which the live version answers and the log leaves out."""

_LENGTH = struct.Struct("<I").unpack_from


class TritonPythonModel:
    """One instance of the endpoint of one model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the encoder of every version that may be live, unless its folder was removed."""
        # Triton's own function takes three times as long. It is looked up there for each tensor.
        pb_utils.deserialize_bytes_tensor = _texts
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        self.forest = parameters["forest"]
        folder = Path(args["model_repository"])
        own = folder / args["model_version"]
        code = _module(own / "encoder.py")
        first, *others = (about["version"] for about in json.loads(parameters["versions"]))
        files = {number: folder / str(number) / "encoder.json" for number in (first, *others)}
        self.versions = [
            Version(code, number, json.loads(path.read_bytes()))
            for number, path in files.items()
            if number == first or path.is_file()
        ]
        if hasattr(pb_utils, "is_model_ready"):
            own_forest = _module(own / "own_forest.py")
            for version in self.versions:
                checkpoint = folder.parent / self.forest / str(version.number) / "checkpoint.tl"
                version.own = own_forest.open_forest(checkpoint, len(version.encoder.features))
        self.counts = _module(own / "counters.py").Counts()
        self.log = self._log(own, os.environ.get(LOG_FOLDER), parameters.get("log"))
        self.canary = self._canary(parameters.get("canary"))

    def _log(self, own: Path, place: str | None, options: str | None) -> Any:  # noqa: ANN401
        if not (place and options):
            return None
        log = _module(own / "inference_log.py").RequestLog(Path(place) / self.forest, **json.loads(options))
        labels = {"model": self.forest}
        text = "Rows written into the inference log."
        self.counts.add("dmls_logged_rows_total", text, labels, log, "written")
        text = "Rows sampled for the inference log and discarded."
        self.counts.add("dmls_log_dropped_rows_total", text, labels, log, "dropped")
        return log

    def _canary(self, options: str | None) -> Challenger | None:
        """Return the challenger, if there is one; it is not a version that may be live."""
        if not options:
            return None
        canary = Challenger(self.versions, **json.loads(options))
        self.versions = [version for version in self.versions if version is not canary.version]
        labels = {"model": self.forest, "version": str(canary.number)}
        for name, text, attribute in (
            ("dmls_canary_rows_total", "Rows that a challenger answered.", "answered"),
            (
                "dmls_canary_different_rows_total",
                "Of them, rows that the live version answered differently.",
                "differed",
            ),
            (
                "dmls_canary_missed_total",
                "Requests for a challenger that it did not answer.",
                "missed",
            ),
        ):
            self.counts.add(name, text, labels, canary, attribute)
        return canary

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer requests with one call of the forest for all their rows."""
        tables = [_columns(request) for request in requests]
        ids = [request.request_id() for request in requests] if self.log or self.canary else []
        tried = self.canary.answer(ids, tables) if self.canary else {}
        shadows = tried if self.canary and self.canary.shadow else {}
        answers: list[Any] = [None if i in shadows else tried.get(i) for i in range(len(tables))]
        mine = [i for i, answer in enumerate(answers) if answer is None]
        for i, answer in zip(mine, self._answer([tables[i] for i in mine]) if mine else [], strict=True):
            answers[i] = answer
        try:
            for i, shadow in shadows.items():
                self.canary.compare(answers[i], shadow)  # type: ignore[union-attr]
            for i, request_id in enumerate(ids if self.log else ()):
                self._note(request_id, tables[i], answers[i], shadows.get(i))
            self.counts.update_sometimes()
        except Exception as error:  # noqa: BLE001  logging must not fail a request
            pb_utils.Logger.log_warn(f"{self.forest}: requests were not logged: {error}")
        return [answer.response() for answer in answers]

    def finalize(self) -> None:
        """Write the remaining log entries and metrics."""
        if self.log:
            self.log.close()
        self.counts.update()

    def _note(self, request_id: str, table: Any, answer: Answer, shadow: Answer | None) -> None:  # noqa: ANN401
        version = answer.version
        if version is None:
            return
        other = None
        if shadow is not None and shadow.version is not None:
            other = (shadow.version.number, shadow.version.texts, shadow.outputs)
        self.log.add(request_id, version.number, table, version.texts, answer.outputs, other)

    def _answer(self, tables: list[Any]) -> list[Answer]:
        """Return the live version's answer to each table."""
        refused: str = ""
        for _ in range(ROUNDS):
            unfit: list[Any] = []
            for version in list(self.versions):
                encoded = [version.encode(table) for table in tables]
                if all(isinstance(part, str) for part in encoded):
                    unfit = unfit or encoded  # unless they are the columns of another live version
                    continue
                outputs, refused = version.ask(self.forest, encoded)
                if outputs is None:
                    continue
                if version is not self.versions[0]:  # the next requests go to it first
                    self.versions = [version, *(other for other in self.versions if other is not version)]
                return version.split(encoded, outputs)
            if unfit:
                return [Answer(error=error) for error in unfit]
        return [Answer(error=refused, code=pb_utils.TritonError.UNAVAILABLE) for _ in tables]


class Answer:
    """The answer to one request: a version's outputs, or an error."""

    def __init__(
        self,
        version: Version | None = None,
        outputs: Any = None,  # noqa: ANN401
        error: str = "",
        code: Any = None,  # noqa: ANN401
    ) -> None:
        self.version, self.outputs, self.error, self.code = version, outputs, error, code

    def chosen(self) -> Any:  # noqa: ANN401
        """Return the labels, or the values, of shape (n_rows,)."""
        version: Any = self.version
        if version.texts is None:
            return self.outputs[:, 0]
        return version.labels[self.outputs.argmax(axis=1)]

    def response(self) -> Any:  # noqa: ANN401
        """Return the answer as Triton's response."""
        if self.version is None:
            code = pb_utils.TritonError.INVALID_ARG if self.code is None else self.code
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(self.error, code))
        return self.version.response(self.outputs)


class Version:
    """A version of the model: its encoder and its labels."""

    def __init__(self, code: Any, number: int, encoder: dict[str, Any]) -> None:  # noqa: ANN401  a module
        self.number = number
        self.encoder = code.Encoder.from_json(encoder)
        labels = self.encoder.target.labels
        self.texts = None if labels is None else list(labels)
        self.labels = None if labels is None else np.array([label.encode() for label in labels], dtype=object)
        features, kind = list(enumerate(self.encoder.features)), code.CategoryFeature
        self.categories = [(i, Category(code, f)) for i, f in features if isinstance(f, kind)]
        self.numbers = [(i, f) for i, f in features if not isinstance(f, kind)]
        self.own: Any = None  # a copy of the forest in this process
        with np.errstate(over="ignore"):
            self.fills = np.array([[f.fill] for _, f in self.numbers], np.float64).astype(np.float32)

    def encode(self, table: dict[str, Any]) -> Any:  # noqa: ANN401
        """Return the encoded matrix of a table, or an error message."""
        if missing := [name for name in self.encoder.feature_names if name not in table]:
            return f"columns are missing: {', '.join(map(repr, missing))}"
        shape = len(self.encoder.features), len(next(iter(table.values())))
        columns = np.empty(shape, dtype=np.float32)
        try:
            for position, category in self.categories:
                columns[position] = category.encode(table[category.name])
            self._encode_numbers(table, columns)
        except ValueError as error:
            return str(error)
        return np.ascontiguousarray(columns.T)

    def _encode_numbers(self, table: dict[str, Any], columns: Any) -> None:  # noqa: ANN401
        """Encode all numbers at once; one by one if another version has the column as a category."""
        found = [table[feature.name] for _, feature in self.numbers]
        if any(values.dtype != np.float64 for values in found):
            for (position, feature), values in zip(self.numbers, found, strict=True):
                columns[position] = feature.encode(_decoded(feature.name, values))
        elif found:
            with np.errstate(over="ignore"):
                encoded = np.array(found).astype(np.float32)
            np.copyto(encoded, self.fills, where=np.isnan(encoded))
            columns[[position for position, _ in self.numbers]] = encoded

    def ask(self, forest: str, encoded: list[Any]) -> tuple[Any, str]:
        """Return the forest's outputs for all rows; or ``None`` and why this version is not served."""
        good = [part for part in encoded if not isinstance(part, str)]
        rows = np.concatenate(good) if len(good) > 1 else good[0]
        if self.own and self.own.answers(len(rows)) and pb_utils.is_model_ready(forest, str(self.number)):
            return self.own.predict(rows, len(self.texts or "1")), ""
        request = pb_utils.InferenceRequest(
            model_name=forest,
            model_version=self.number,
            requested_output_names=["output__0"],
            inputs=[pb_utils.Tensor("input__0", rows)],
            # The answer of a forest on a GPU would stay there.
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )
        response = request.exec()
        if response.has_error():
            return None, response.error().message()
        outputs = pb_utils.get_output_tensor_by_name(response, "output__0").as_numpy()
        outputs = outputs.reshape(len(rows), -1)
        if self.own and not self.own.agrees(rows, outputs):
            self.own = None
        return outputs, ""

    def split(self, encoded: list[Any], outputs: Any) -> list[Answer]:  # noqa: ANN401
        """Split the outputs by request."""
        answers, start = [], 0
        for part in encoded:
            if isinstance(part, str):
                answers.append(Answer(error=part))
            else:
                answers.append(Answer(self, outputs[start : start + len(part)]))
                start += len(part)
        return answers

    def response(self, outputs: Any) -> Any:  # noqa: ANN401
        """Return outputs of shape (n_rows, n_outputs) as the endpoint's own."""
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
    """A categorical feature as ``encoder.py`` encodes it, fast for known texts."""

    def __init__(self, code: Any, feature: Any) -> None:  # noqa: ANN401
        self.name = feature.name
        self._feature = feature
        self._known = {
            text.encode(): float(number)
            for number, text in enumerate(feature.categories)
            if code.category_text(text) == text
        }

    def encode(self, values: Any) -> Any:  # noqa: ANN401
        """Return the codes of texts, float32 of shape (n_rows,)."""
        if values.dtype != object:
            return self._feature.encode(values)
        codes = map(self._known.get, values.tolist(), repeat(math.nan))
        encoded = np.fromiter(codes, dtype=np.float32, count=len(values))
        if (other := np.isnan(encoded)).any():
            encoded[other] = self._feature.encode(_decoded(self.name, values[other]))
        return encoded


class Challenger:
    """A version that receives a share of the requests; if it does not answer, the live version does."""

    def __init__(self, versions: list[Version], model: str, version: int, share: float, shadow: bool) -> None:
        self.forest, self.number, self.share, self.shadow = model, version, share, shadow
        self.version = next((known for known in versions if known.number == version), None)
        self.answered = self.differed = self.missed = 0

    def answer(self, request_ids: list[str], tables: list[Any]) -> dict[int, Answer]:
        """Return the challenger's answers to its share of the requests, by position."""
        drawn = [i for i, request_id in enumerate(request_ids) if self._selects(request_id)]
        answers: dict[int, Answer] = {}
        if self.version is not None and drawn:
            encoded = [self.version.encode(tables[i]) for i in drawn]
            if not all(isinstance(part, str) for part in encoded):
                outputs, _ = self.version.ask(self.forest, encoded)
                if outputs is not None:
                    parts = zip(drawn, self.version.split(encoded, outputs), strict=True)
                    answers = {i: answer for i, answer in parts if not answer.error}
        self.missed += len(drawn) - len(answers)
        self.answered += sum(len(answer.outputs) for answer in answers.values())
        return answers

    def compare(self, live: Answer, challenger: Answer) -> None:
        """Count the rows with another label, or with a value that differs by more than 1 %."""
        if live.version is None:
            return
        ours, theirs = live.chosen(), challenger.chosen()
        differ = ours != theirs if live.version.texts else np.abs(theirs - ours) > np.abs(ours) / 100
        self.differed += int(np.count_nonzero(differ))

    def _selects(self, request_id: str) -> bool:
        """Select by the request's id, if it has one: requests with the same id go to the same version."""
        if request_id.startswith(OWN_REQUESTS):
            return False
        drawn = zlib.crc32(request_id.encode()) / 2**32 if request_id else random.random()  # noqa: S311
        return drawn < self.share


def _module(path: Path) -> Any:  # noqa: ANN401
    spec = importlib.util.spec_from_file_location(f"dmls_table_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise pb_utils.TritonModelException(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their own module
    spec.loader.exec_module(module)
    return module


def _columns(request: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a request's columns by name, each of shape (n_rows,); texts are bytes."""
    return {tensor.name(): tensor.as_numpy().reshape(-1) for tensor in request.inputs()}


def _texts(encoded: Any) -> Any:  # noqa: ANN401
    """Return a tensor's texts as bytes: in memory each text follows its length as uint32."""
    data = encoded.tobytes()
    texts, end = [], 0
    while end < len(data):
        start = end + 4
        end = start + _LENGTH(data, end)[0]
        texts.append(data[start:end])
    found = np.empty(len(texts), dtype=object)
    found[:] = texts
    return found


def _decoded(name: str, values: Any) -> Any:  # noqa: ANN401
    """Return texts as ``encoder.py`` expects them (ValueError: not UTF-8); numbers stay as they are."""
    if values.dtype != object:
        return values
    found = np.empty(len(values), dtype=object)
    try:
        found[:] = [text.decode() for text in values]
    except UnicodeDecodeError as error:
        raise ValueError(f"column {name!r} holds a text that is not UTF-8: {error.reason}") from None
    return found
