"""``connect``: send a DataFrame to a served model over gRPC, and get a DataFrame back.

It needs NumPy and ``tritonclient[grpc]``, and no file of the model: Triton returns the table endpoint's
configuration, which states its inputs and outputs.
"""

from __future__ import annotations

import json
import re
import uuid
import warnings
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError, NotFoundError, ServingError, ValidationIssue
from dmls_core.serving.triton.addresses import parse_address
from dmls_core.serving.triton.client import CHANNEL, key_headers
from dmls_core.serving.triton.model_config import (
    LABEL,
    MAX_BATCH_SIZE,
    NOTES,
    PROBABILITIES,
    VALUE,
    VERSION,
    table_name,
)
from dmls_core.serving.triton.shared_memory import SharedInputs
from dmls_core.serving.triton.tensors import Columns, column_names, like, read_columns

if TYPE_CHECKING:
    from dmls_core.settings import Settings

PREDICTION, PROBABILITY = "prediction", "probability_"
ROUNDS = 3
"""Attempts for a frame if another version goes live meanwhile."""

ANY = 0
"""Every version of a model: they have the same columns and labels."""

FIRST_ROW = "first_row"
"""Parameter of a request: the position of its first row among all rows with the same id."""

_REQUEST_ID = re.compile(r"(?!dmls\.)[!-~](?:[ -~]{0,126}[!-~])?")
"""Ids that begin with ``dmls.`` are those of DMLS's own requests."""

MAX_NAMES = 5
"""Other columns that a warning names."""

FOLDER = "folder"
"""The table endpoint's own version, next to its outputs."""

REQUEST_BYTES = 64 << 20
"""Maximum size of a request's numbers; texts may take more."""


@dataclass(frozen=True, slots=True)
class TableSignature:
    """Inputs and outputs of a table endpoint.

    Attributes:
        folder: the table endpoint's own version in Triton; endpoints with other columns have another one.
        data_types: Triton's type of each column.
        matrices: inputs that hold several columns, and their columns; none before DMLS wrote them.
        columns: the columns of each version that may answer, the configured one first; ``ANY`` if they are
            the same for every version.
        labels: the labels of each version; ``None`` for a regression.
        marks: texts of missing values besides those that are always read so.
        booleans: columns of numbers that may hold booleans; ``None`` if any may.
    """

    folder: int

    data_types: dict[str, str]
    matrices: dict[str, tuple[str, ...]]
    columns: dict[int, tuple[str, ...]]
    labels: dict[int, tuple[str, ...] | None]
    marks: tuple[str, ...] = ()
    booleans: tuple[str, ...] | None = None


def connect(model: str, *, grpc: str = "", timeout: float = 60.0, shared_memory: bool = False) -> TritonModel:
    """Connect to a served model.

    Args:
        model: ``<team>.<job>``.
        grpc: ``host:port`` of Triton's gRPC endpoint, or a list as ``DMLS_TRITON_GRPC`` holds it; by default
            that variable, or the embedded platform's. If the list places models, another server of the model
            answers when one is lost.
        timeout: seconds that a request may take.
        shared_memory: pass rows to a Triton on this machine by POSIX shared memory instead of messages.
            Close the connection afterwards, or Triton keeps the region registered. A Triton with a key
            needs that of ``DMLS_TRITON_KEY``, or of the embedded platform.

    Raises:
        NotFoundError: Triton serves no such model.
        ServingError: Triton does not answer, or cannot use this machine's shared memory, or ``model`` is
            not a model's name.
        PlatformError: no address is given or set.

    Examples:
        >>> from dmls_core.serving import connect
        >>> with connect("lab.parts", grpc="triton.example:8001") as model:
        ...     predictions = model.predict({"size": [0.5], "count": [3], "colour": ["red"]})
        >>> list(predictions)
        ['prediction', 'probability_bad', 'probability_good', 'probability_so-so']

        True values that come later name the id of the request, and the row in it:

        >>> with connect("lab.parts", grpc="triton.example:8001") as model:
        ...     rows = {"size": [0.5], "count": [3], "colour": ["red"]}
        ...     predictions = model.predict(rows, request_id="order-17")
    """
    from dmls_core.serving.triton.placement import find_addresses

    addresses = find_addresses(grpc or _settings().require("triton_grpc"), model)
    return TritonModel(model, addresses, timeout=timeout, shared_memory=shared_memory)


def check_request_id(request_id: str) -> str:
    """Return the id of a request if it is empty or allowed; raise ``DataError`` for another one."""
    if request_id and not _REQUEST_ID.fullmatch(request_id):
        hint = "write 1 to 128 ASCII characters, and not dmls. at the beginning"
        raise DataError(ValidationIssue("the request's id is not allowed", hint=hint, found=request_id[:60]))
    return request_id


def _settings() -> Settings:
    # Imported here: with its own address the client needs no settings.
    from dmls_core.settings import load_settings

    return load_settings()


class TritonModel:
    """A model behind its table endpoint, for one thread at a time."""

    def __init__(self, model: str, addresses: Sequence[str], *, timeout: float, shared_memory: bool) -> None:
        self.model, self._timeout = model, timeout
        self._endpoint = table_name(model)
        self._triton = import_module("tritonclient.grpc")
        # Shared memory is that of the first server's machine.
        self._addresses = deque(addresses[:1] if shared_memory else addresses)
        self._open()
        self._signature = self._read_signature()
        self._shared: SharedInputs | None = None
        self.notes: dict[int, list[str]] = {}
        if shared_memory:
            with self._answering():
                self._shared = SharedInputs(
                    self._client, self._address, timeout=timeout, headers=key_headers(_settings().triton_key)
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and its shared memory."""
        if self._shared:
            self._shared.release()
        self._client.close()

    @property
    def _address(self) -> str:
        return self._addresses[0]

    def _open(self) -> None:
        self._client = self._triton.InferenceServerClient(
            **parse_address(self._address, "grpc").client_options(), channel_args=CHANNEL
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that ``predict`` needs."""
        return next(iter(self._signature.columns.values()))

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in the order of their probabilities; empty for a regression."""
        return next(iter(self._signature.labels.values())) or ()

    def predict(
        self,
        frame: Any,  # noqa: ANN401  a DataFrame of pandas or polars
        *,
        request_id: str = "",
        strict: bool = False,
        notes: bool = True,
    ) -> Any:  # noqa: ANN401
        """Predict the rows of a frame, all with the same version of the model.

        Args:
            frame: a pandas or polars DataFrame, or a mapping of column names to values.
            request_id: under which the inference log has the rows, so that true values that come later find
                their predictions; by default a new one.
            strict: refuse rows unlike those of the training, and columns that the model does not have.
            notes: warn of both, and predict without such columns; afterwards, ``notes`` of this object has
                what is special about each row, by its number.

        Returns:
            A frame of the same library with ``prediction`` and, for a classification,
            ``probability_<label>`` for each label, in the order of the rows, with pandas' index; for a
            mapping, a dict of arrays.

        Raises:
            DataError: a column is missing, or a value is not a number where one is needed; it names up to
                20 such values. Or there is something to note, and ``strict``.
            ServingError: Triton does not answer, or fails.
        """
        request_id = check_request_id(request_id) or uuid.uuid4().hex
        for _ in range(ROUNDS):
            signature, address = self._signature, self._address
            try:
                columns = read_columns(
                    frame,
                    signature.data_types,
                    list(signature.columns.values()),
                    signature.marks,
                    signature.booleans,
                )
                parts = self._ask(columns, request_id, notes=notes or strict)
            except (DataError, NotFoundError, ServingError):
                self._signature = self._read_signature()
                if (self._signature, self._address) == (signature, address):
                    raise
                continue  # another version went live meanwhile, with other columns, or another server answers
            versions = {int(v) for part in parts for v in part[VERSION]} or {next(iter(signature.columns))}
            if len(versions) == 1 and all(part[FOLDER] == signature.folder for part in parts):
                version = versions.pop() if ANY not in signature.labels else ANY
                if version in signature.labels:
                    self.notes = _notes(parts)
                    remarks = [
                        *([_first(self.notes)] if self.notes else []),
                        *_describe_others(column_names(frame), signature.data_types),
                    ]
                    if remarks and strict:
                        raise DataError([ValidationIssue(remark) for remark in remarks])
                    for remark in remarks if notes else ():
                        warnings.warn(remark, stacklevel=2)
                    return like(frame, _added(parts, signature.labels[version]))
            self._signature = self._read_signature()
        raise ServingError(f"{self.model} changed its version {ROUNDS} times during the request: try again")

    def _ask(self, columns: Columns, request_id: str, *, notes: bool) -> list[Columns]:
        """Return the outputs for the rows, in parts of as many rows as Triton accepts.

        During a canary, the same version answers all requests with the same id.
        """
        n_rows = len(next(iter(columns.values()), ()))
        parts = []
        size = max(1, min(MAX_BATCH_SIZE, REQUEST_BYTES // (8 * max(1, len(columns)))))
        for start in range(0, n_rows, size):
            inputs = {}
            rows = {name: values[start : start + size] for name, values in columns.items()}
            for name, values in self._joined(rows).items():
                datatype = "BYTES" if values.dtype == object else "FP64"
                inputs[self._triton.InferInput(name, list(values.shape), datatype)] = values
            with self._answering():
                parameters = {**({FIRST_ROW: start} if start else {}), **({NOTES: True} if notes else {})}
                answer = self._infer(inputs, request_id, parameters)
            response = answer.get_response()
            outputs = {o.name: answer.as_numpy(o.name) for o in response.outputs}
            outputs = {k: v if k == PROBABILITIES else v.reshape(-1) for k, v in outputs.items()}
            parts.append(outputs | {FOLDER: np.int64(response.model_version)})
        return parts

    def _joined(self, columns: Columns) -> Columns:
        """Return inputs of shape (n_rows, n_columns): Triton needs time for each input."""
        inputs = {}
        for matrix, names in self._signature.matrices.items():
            if all(name in columns for name in names):
                inputs[matrix] = np.stack([columns.pop(name) for name in names], axis=1)
        return inputs | {name: values.reshape(-1, 1) for name, values in columns.items()}

    def _infer(self, inputs: Mapping[Any, NDArray[Any]], request_id: str, parameters: dict[str, Any]) -> Any:  # noqa: ANN401  untyped

        def send() -> Any:  # noqa: ANN401
            return self._client.infer(
                self._endpoint,
                list(inputs),
                request_id=request_id,
                client_timeout=self._timeout,
                parameters=parameters or None,
            )

        if self._shared:
            return self._shared.ask(inputs, send)
        for tensor, values in inputs.items():
            tensor.set_data_from_numpy(values)
        return send()

    def _read_signature(self) -> TableSignature:
        """Read it from the first server that serves the model, and stay with this server."""
        for _ in range(len(self._addresses) - 1):
            try:
                return self._read_signature_here()
            except (NotFoundError, ServingError):
                self._client.close()
                self._addresses.rotate(-1)
                self._open()
        return self._read_signature_here()

    def _read_signature_here(self) -> TableSignature:
        with self._answering():
            answer = self._client.get_model_config(self._endpoint, as_json=True, client_timeout=self._timeout)
        config = answer["config"]
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        versions, matrices = json.loads(parameters["versions"]), json.loads(parameters.get("matrices", "{}"))
        labels = {entry.get("version", ANY): entry["labels"] for entry in versions}
        (folder,) = config["version_policy"]["specific"]["versions"]
        return TableSignature(
            folder=int(folder),
            data_types={t["name"]: t["data_type"] for t in config["input"] if t["name"] not in matrices},
            matrices={name: tuple(columns) for name, columns in matrices.items()},
            columns={entry.get("version", ANY): tuple(entry["columns"]) for entry in versions},
            labels={version: None if names is None else tuple(names) for version, names in labels.items()},
            marks=tuple(json.loads(parameters.get("missing", "[]"))),
            booleans=tuple(json.loads(parameters["booleans"])) if "booleans" in parameters else None,
        )

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn errors of the client library into errors that name the address."""
        from tritonclient.utils import InferenceServerException

        try:
            yield
        except InferenceServerException as error:
            status, message = error.status() or "", error.message()
            if status.endswith("NOT_FOUND") or "unknown model" in message:
                raise NotFoundError(
                    f"Triton at {self._address} does not serve {self._endpoint}: deploy {self.model} first"
                ) from error
            if status.endswith(("UNAVAILABLE", "DEADLINE_EXCEEDED")):
                raise ServingError(f"Triton at {self._address} does not answer: {message}") from error
            if status.endswith("INVALID_ARGUMENT"):
                raise DataError(f"{self._endpoint} cannot take these rows: {message}") from error
            raise ServingError(f"Triton at {self._address} failed at {self._endpoint}: {message}") from error


def _notes(parts: list[Columns]) -> dict[int, list[str]]:
    """Return the notes of each row that has some."""
    notes: dict[int, list[str]] = {}
    first = 0
    for part in parts:
        for row, text in enumerate(part.get(NOTES, ())):
            if text:
                notes[first + row] = json.loads(text)
        first += len(part[VERSION])
    return notes


def _first(notes: dict[int, list[str]]) -> str:
    row, texts = next(iter(notes.items()))
    return f"rows unlike those of the training: {len(notes):,}; row {row + 1}: {texts[0]}"


def _describe_others(names: Sequence[str], columns: Collection[str]) -> list[str]:
    """Return a remark on names that are not columns of the model; none without any."""
    others = [name for name in names if name not in columns]
    if not others:
        return []
    more = f" and {len(others) - MAX_NAMES:,} more" if len(others) > MAX_NAMES else ""
    return [f"the model has no column {', '.join(map(repr, others[:MAX_NAMES]))}{more}"]


def _added(parts: list[Columns], labels: tuple[str, ...] | None) -> Columns:
    if labels is None:
        return {PREDICTION: np.concatenate([np.empty(0, np.float32), *(part[VALUE] for part in parts)])}
    chosen = [label.decode() for part in parts for label in part[LABEL]]
    none = np.empty((0, len(labels)), np.float32)
    probabilities = np.concatenate([none, *(part[PROBABILITIES] for part in parts)])
    named = {PROBABILITY + label: probabilities[:, i] for i, label in enumerate(labels)}
    return {PREDICTION: np.array(chosen, dtype=object), **named}
