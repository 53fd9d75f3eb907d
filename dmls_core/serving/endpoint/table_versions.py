"""The versions of a model in its table endpoint: they encode rows, call the forest and make the answers.

The file is copied into the folder of the table endpoint's code, and imports nothing of DMLS.
"""

from __future__ import annotations

import json
import math
import struct
from itertools import chain, repeat
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

_LENGTH = struct.Struct("<I").unpack_from

UNKNOWN_TEXT = math.inf
"""In place of a code, which is finite or NaN."""


class Answer:
    """The answer to one request: a version's outputs, or an error."""

    def __init__(
        self,
        version: Version | None = None,
        outputs: Any = None,  # noqa: ANN401
        error: str = "",
        code: Any = None,  # noqa: ANN401
        rows: Any = None,  # noqa: ANN401
    ) -> None:
        self.version, self.outputs, self.error, self.code = version, outputs, error, code
        self.rows = rows
        """The encoded rows, if a user has sent them."""
        self.notes: dict[int, list[str]] = {}
        """What is unlike the rows of the training, for a client that asks for it."""

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
        return self.version.response(self.outputs, self.notes)


class Version:
    """A version of the model: its encoder and its labels."""

    def __init__(self, code: Any, number: int, encoder: dict[str, Any]) -> None:  # noqa: ANN401  a module
        self.number = number
        self.encoder = code.Encoder.from_json(encoder)
        labels = self.encoder.target.labels
        self.texts = None if labels is None else list(labels)
        self.labels = None if labels is None else np.array([label.encode() for label in labels], dtype=object)
        self.categories: list[tuple[int, Category]] = []
        self.dates: list[tuple[int, Any]] = []
        self.numbers: list[Any] = []
        positions: list[int] = []
        for i, feature in enumerate(self.encoder.column_features):
            if isinstance(feature, code.CategoryFeature):
                self.categories.append((i, Category(code, feature)))
            elif isinstance(feature, code.NumberFeature):
                self.numbers.append(feature)
                positions.append(i)
            elif not self.dates or self.dates[-1][1] is not feature:
                self.dates.append((i, feature))
        self.positions = np.array(positions, np.intp)
        self.own: Any = None  # a copy of the forest in this process, once it is opened
        self.opened = False
        self._describe_special(code)
        with np.errstate(over="ignore"):
            self.fills = np.array([[f.fill] for f in self.numbers], np.float64).astype(np.float32)

    def _describe_special(self, code: Any) -> None:  # noqa: ANN401
        """Keep for each column of the matrix its range, and its codes of unknown and missing values."""
        lows: list[float] = []
        highs: list[float] = []
        unknown: list[float] = []
        missing: list[float] = []
        for feature in self.encoder.features:
            others = len(feature.columns) - 1  # parts of a date
            category = isinstance(feature, code.CategoryFeature)
            low, high = (None if category else feature.range) or (-math.inf, math.inf)
            lows += [low] + [-math.inf] * others
            highs += [high] + [math.inf] * others
            unknown += [feature.unknown if category else math.nan] + [math.nan] * others
            fill = feature.missing if category else feature.fill
            missing += (
                fill if isinstance(fill, tuple) else [math.nan if fill is None else fill] * (others + 1)
            )
        with np.errstate(over="ignore"):
            self.lows, self.highs, self.unknown, self.missing = (
                np.array(values, np.float32) for values in (lows, highs, unknown, missing)
            )
        self.missing_is_nan = np.isnan(self.missing)

    def encode(self, table: dict[str, Any]) -> Any:  # noqa: ANN401
        """Return the encoded matrix of a table, or an error message."""
        if missing := [name for name in self.encoder.feature_names if name not in table]:
            return f"columns are missing: {', '.join(map(repr, missing))}"
        shape = len(self.encoder.column_names), len(next(iter(table.values())))
        columns = np.empty(shape, dtype=np.float32)
        try:
            self._encode_categories(table, columns)
            for position, date in self.dates:
                parts = date.encode(_decoded(date.name, table[date.name]))
                columns[position : position + len(date.columns)] = parts.T
            self._encode_numbers(table, columns)
        except ValueError as error:
            return str(error)
        return np.ascontiguousarray(columns.T)

    def _encode_categories(self, table: dict[str, Any], columns: Any) -> None:  # noqa: ANN401
        """Encode all categories in one pass; one by one those with texts that are not known as they are."""
        if not self.categories:
            return
        texts = [table[category.name] for _, category in self.categories]
        if not all(values.dtype == object for values in texts):  # another version has numbers there
            for (position, category), values in zip(self.categories, texts, strict=True):
                columns[position] = category.encode(values)
            return
        codes = (
            map(category.known.get, values.tolist(), repeat(UNKNOWN_TEXT))
            for (_, category), values in zip(self.categories, texts, strict=True)
        )
        shape = len(texts), columns.shape[1]
        encoded = np.fromiter(chain.from_iterable(codes), np.float32, math.prod(shape)).reshape(shape)
        if (others := encoded == UNKNOWN_TEXT).any():
            for i in np.flatnonzero(others.any(axis=1)):
                encoded[i, others[i]] = self.categories[i][1].encode(texts[i][others[i]])
        for (position, _), row in zip(self.categories, encoded, strict=True):
            columns[position] = row

    def _encode_numbers(self, table: dict[str, Any], columns: Any) -> None:  # noqa: ANN401
        """Encode all numbers at once; one by one if another version has the column as a category."""
        if not self.numbers:
            return
        numbers = [table[feature.name] for feature in self.numbers]
        joined = np.concatenate(numbers)
        if joined.dtype != np.float64:
            for position, feature, values in zip(self.positions, self.numbers, numbers, strict=True):
                columns[position] = feature.encode(_decoded(feature.name, values))
            return
        with np.errstate(over="ignore"):
            encoded = joined.astype(np.float32).reshape(len(numbers), -1)
        if np.isinf(encoded).any():
            self._refuse_infinite(numbers)
        if (missing := np.isnan(encoded)).any():
            np.copyto(encoded, self.fills, where=missing)
        columns[self.positions] = encoded

    def _refuse_infinite(self, numbers: list[Any]) -> None:
        for feature, values in zip(self.numbers, numbers, strict=True):
            feature.encode(values)

    def ask(self, forest: str, encoded: list[Any], trace: Any = None) -> tuple[Any, str]:  # noqa: ANN401
        """Return the forest's outputs for all rows; or ``None`` and why this version is not served.

        A request to the forest is part of ``trace``, if there is one.
        """
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
            **({"trace": trace} if trace else {}),
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
                answers.append(Answer(self, outputs[start : start + len(part)], rows=part))
                start += len(part)
        return answers

    def find_notes(self, table: dict[str, Any], rows: Any, code: Any) -> Any:  # noqa: ANN401
        """Return notes on the encoded ``rows`` of a table by the module ``code``; None without any."""
        special = (rows < self.lows) | (rows > self.highs) | (rows == self.unknown)
        missing = (rows == self.missing) | (np.isnan(rows) & self.missing_is_nan)
        if not special.any() and not missing.all(axis=1).any():
            return None
        columns = {
            name: _Texts(table[name]) if table[name].dtype == object else table[name]
            for name in self.encoder.feature_names
        }
        found = code.find_notes(self.encoder, columns, rows)
        return found if found.counts else None

    def response(self, outputs: Any, notes: dict[int, list[str]]) -> Any:  # noqa: ANN401
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
        if notes:
            tensors.append(notes_tensor(len(outputs), notes))
        return pb_utils.InferenceResponse([*tensors, version])


def notes_tensor(n_rows: int, notes: dict[int, list[str]]) -> Any:  # noqa: ANN401
    """Return the notes of each row as JSON, an empty text without any."""
    texts = np.full((n_rows, 1), b"", dtype=object)
    for row, lines in notes.items():
        texts[row, 0] = json.dumps(lines).encode()
    return pb_utils.Tensor("notes", texts)


class _Texts:
    """The texts of a column, decoded when they are looked at; numbers of another version stay as they are."""

    def __init__(self, values: Any) -> None:  # noqa: ANN401
        self._values = values

    def __getitem__(self, row: int) -> str:
        return str(self._values[row].decode())


class Category:
    """A categorical feature, with the codes of the texts that need no reading.

    Attributes:
        known: the code of each category in its usual spelling, and of the empty text, which is missing.
    """

    def __init__(self, code: Any, feature: Any) -> None:  # noqa: ANN401
        self.name = feature.name
        self._feature = feature
        self.known = {
            text.encode(): float(number)
            for number, text in enumerate(feature.categories)
            if code.category_text(text) == text
        } | {b"": feature.missing}

    def encode(self, values: Any) -> Any:  # noqa: ANN401
        """Return the codes of texts or numbers, as ``encoder.py`` does: float32 of shape (n_rows,)."""
        return self._feature.encode(_decoded(self.name, values))


def texts_of(encoded: Any) -> Any:  # noqa: ANN401
    """Return a tensor's texts as bytes: in memory each text follows its length as uint32."""
    data = encoded.tobytes()
    texts, end = [], 0
    while end < len(data):
        start = end + 4
        end = start + _LENGTH(data, end)[0]
        texts.append(data[start:end])
    decoded = np.empty(len(texts), dtype=object)
    decoded[:] = texts
    return decoded


def _decoded(name: str, values: Any) -> Any:  # noqa: ANN401
    """Return texts as ``encoder.py`` expects them (ValueError: not UTF-8); numbers stay as they are."""
    if values.dtype != object:
        return values
    decoded = np.empty(len(values), dtype=object)
    try:
        decoded[:] = [text.decode() for text in values]
    except UnicodeDecodeError as error:
        raise ValueError(f"column {name!r} holds a text that is not UTF-8: {error.reason}") from None
    return decoded
