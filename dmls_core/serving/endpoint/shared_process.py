"""The model that many small models share: their table endpoints and their forests in one process.

Triton's Python backend runs a copy of this file as ``model.py``. Requests come from the ensembles
``<team>.<job>`` and ``<team>.<job>.table``, see ``shared_process.py``: the numbers in the names of their
tensors are a version's slot. The repository has a record of each slot, with the version and the SHA-256 of
its files. A version is read at its first request, and forgotten once others need the memory.

Anyone who may send requests to Triton may also send them here directly. So every request is checked, and one
that is wrong fails alone. A request that never ends would keep all models from answering, so it ends the
process, which ``dmls.repair`` then starts again.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib.util
import json
import math
import re
import sys
import threading
import time
import traceback
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from table_versions import Version, notes_tensor, texts_of  # type: ignore[import-not-found]

RECORDS = ".dmls/shared"
MODEL_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\.[a-z0-9][a-z0-9_-]{0,62}")
ENCODER = "encoder.json"
NUMBERED = re.compile(r"(input|output|probabilities|value|version)_([0-9]{1,5})")
COLUMN = re.compile(r"(number|text)_([0-9]{1,5})")
ALIVE = "dmls.alive"
"""Id of a request that asks whether this process runs."""

OWN_REQUESTS = "dmls."
"""Prefix of the ids of DMLS's own requests, whose notes are not counted."""
NOTES = "notes"
"""Output with the notes on each row."""

UNNAMED = "this request names no version of a model: send it to the model's own name"

ENCODER_FACTOR = 8
"""Bytes of an encoder in memory for each byte of its file, roughly."""


class RequestError(Exception):
    """A request that cannot be answered; the message is for its sender."""


class SharedVersion:
    """A version in memory: its encoder and its forest."""

    def __init__(self, model: str, version: Any, forest: Any, size: int) -> None:  # noqa: ANN401
        self.model, self.version, self.forest, self.size = model, version, forest, size
        encoder = version.encoder
        self.n_features = len(encoder.column_names)
        feature_types = {feature.name: type(feature).__name__ for feature in encoder.features}
        numbers = [name for name, feature_type in feature_types.items() if feature_type == "NumberFeature"]
        texts = [name for name in feature_types if name not in numbers]
        self.columns = {"number": numbers, "text": texts}
        self.matrices = {
            "numbers": numbers,
            "texts": [name for name in texts if feature_types[name] == "CategoryFeature"],
            "dates": [name for name in texts if feature_types[name] == "DateFeature"],
        }

    def table(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of a request by name; RequestError for an input that is not this model's."""
        columns: dict[str, Any] = {}
        for name, values in inputs.items():
            if names := self.matrices.get(name):
                if values.ndim != 2 or values.shape[1] != len(names):
                    raise RequestError(f"{name} has shape {list(values.shape)}, expected [-1, {len(names)}]")
                columns.update(zip(names, values.T, strict=True))
                continue
            match = COLUMN.fullmatch(name)
            names = self.columns[match[1]] if match else []
            if match is None or int(match[2]) >= len(names):
                raise RequestError(f"the model has no input {name}")
            columns[names[int(match[2])]] = values.reshape(-1)
        if len({len(values) for values in columns.values()}) > 1:
            raise RequestError("the columns have different numbers of rows")
        return columns

    def predict(self, rows: Any) -> Any:  # noqa: ANN401
        """Return float32 predictions, (n_rows, n_outputs), of encoded rows, or raise RequestError."""
        if rows.dtype != np.float32 or rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise RequestError(f"the rows have shape {list(rows.shape)}, expected [-1, {self.n_features}]")
        return self.forest.predict(np.ascontiguousarray(rows), len(self.version.texts or "1"))


class TritonPythonModel:
    """The shared process of a repository."""

    def initialize(self, args: dict[str, str]) -> None:
        """Prepare to read versions; none is read yet."""
        # Triton's own function takes three times as long. It is looked up there for each tensor.
        pb_utils.deserialize_bytes_tensor = texts_of
        parameters = json.loads(args["model_config"])["parameters"]
        self.limit = int(parameters["memory_bytes"]["string_value"])
        model_folder = Path(args["model_repository"])
        self.repository = model_folder.parent
        code = model_folder / args["model_version"]
        _module(code / "private_memory.py").make_memory_private()
        self.code = _module(code / "encoder.py")
        self.row_notes, self.counters = _module(code / "row_notes.py"), _module(code / "counters.py")
        self.counts = self.counters.Counts()
        self.noted: dict[str, Any] = {}
        self.in_process = [_module(path) for path in sorted(code.glob("in_process_*.py"))]
        for module in self.in_process:
            if importlib.util.find_spec(module.REQUIRES) is None:
                raise pb_utils.TritonModelException(
                    f"the Python of Triton has no {module.REQUIRES}: install it there, or unset "
                    "DMLS_SERVING_SHARED_BYTES"
                )
        self.versions: OrderedDict[tuple[int, int], tuple[Any, SharedVersion]] = OrderedDict()
        self.size = 0
        self.started = math.inf
        self.finalized = threading.Event()
        seconds = float(parameters["hung_seconds"]["string_value"])
        self.watcher = threading.Thread(target=self._end_if_hung, args=(seconds,), daemon=True)
        self.watcher.start()

    def finalize(self) -> None:
        """Stop watching this process, which Triton ends."""
        self.finalized.set()
        self.watcher.join()  # it might be about to start the timer
        faulthandler.cancel_dump_traceback_later()
        self.counts.update()

    def _end_if_hung(self, seconds: float) -> None:
        """End the process, with a traceback in Triton's log, ``seconds`` to twice that after a request hung.

        The timer is a thread in C that needs no lock of Python: it ends a process in which no Python runs.
        """
        while not self.finalized.is_set():
            if time.monotonic() - self.started < seconds:
                faulthandler.dump_traceback_later(seconds, exit=True)
            self.finalized.wait(seconds / 4)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request by itself: they are for different models, and a wrong one fails alone."""
        answers = []
        for request in requests:
            self.started = time.monotonic()
            answers.append(self._answer(request))
        self.started = math.inf
        self.counts.update_sometimes()
        return answers

    def _answer(self, request: Any) -> Any:  # noqa: ANN401
        if request.request_id() == ALIVE:
            return pb_utils.InferenceResponse([pb_utils.Tensor("label", np.array([[b"alive"]], object))])
        try:
            return pb_utils.InferenceResponse(self._outputs(request))
        except RequestError as error:
            code, message = pb_utils.TritonError.INVALID_ARG, str(error)
        except Exception:  # noqa: BLE001  it must not fail the requests for other models
            # Whoever asks need not be of the team whose model and files it names.
            pb_utils.Logger.log_error(traceback.format_exc())
            code, message = pb_utils.TritonError.INTERNAL, "the model cannot answer: see Triton's log"
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))

    def _outputs(self, request: Any) -> list[Any]:  # noqa: ANN401
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        matches = [match for n in request.requested_output_names() if (match := NUMBERED.fullmatch(n))]
        slots = {match[1]: int(match[2]) for match in matches}
        if len(slots) < len(matches):
            raise RequestError(UNNAMED)
        forest = [name for name in inputs if NUMBERED.fullmatch(name)]
        if "output" in slots and len(slots) == 1 and len(inputs) == len(forest) == 1:
            low, high = slots["output"], int(forest[0].partition("_")[2])
            rows = inputs[forest[0]]
            outputs = self._version(low, high).predict(rows)
            # As the FIL backend, which drops dimensions of size 1.
            outputs = outputs[:, 0] if outputs.shape[1] == 1 else outputs
            return [pb_utils.Tensor(f"output_{low}", np.ascontiguousarray(outputs))]
        (output, low), high = _table_slot(slots), slots.get("version", -1)
        served = self._version(low, high)
        if (output == "value") != (served.version.labels is None):
            raise RequestError(f"the model has no output {output}")
        table = served.table(inputs)
        encoded = served.version.encode(table)
        if isinstance(encoded, str):
            raise RequestError(encoded)
        outputs = np.ascontiguousarray(served.predict(encoded))
        tensors = [pb_utils.Tensor(f"{output}_{low}", outputs)]
        if output == "probabilities":
            labels = served.version.labels[outputs.argmax(axis=1)].reshape(-1, 1)
            tensors.append(pb_utils.Tensor("label", labels))
        if NOTES in request.requested_output_names():  # ensembles of earlier releases have no such output
            notes = self._notes(request.request_id(), served, table, encoded)
            tensors.append(notes_tensor(len(outputs), notes))
        number = np.full((len(outputs), 1), served.version.number, np.int64)
        return [*tensors, pb_utils.Tensor(f"version_{high}", number)]

    def _notes(
        self,
        request_id: str,
        served: SharedVersion,
        table: dict[str, Any],
        encoded: Any,  # noqa: ANN401
    ) -> dict[int, list[str]]:
        """Return the notes of each row that has some, and count those of users' requests."""
        try:
            notes = served.version.find_notes(table, encoded, self.row_notes)
            if notes and not request_id.startswith(OWN_REQUESTS):
                if served.model not in self.noted:
                    kinds = self.row_notes.KINDS
                    self.noted[served.model] = self.counters.Noted(self.counts, served.model, kinds)
                self.noted[served.model].count(notes.counts)
            return notes.by_row() if notes else {}
        except Exception:  # noqa: BLE001  notes must not fail a request
            pb_utils.Logger.log_error(traceback.format_exc())
            return {}

    def _version(self, low: int, high: int) -> SharedVersion:
        """Return the version of a slot, from memory if its record is unchanged."""
        record = self.repository / RECORDS / str(low) / f"{high}.json"
        try:
            stat = record.stat()
        except OSError:
            self._forget((low, high))
            raise RequestError(f"no model has the slot {low} {high}") from None
        state = stat.st_mtime_ns, stat.st_ino, stat.st_size
        cached = self.versions.get((low, high))
        if cached and cached[0] == state:
            self.versions.move_to_end((low, high))
            return cached[1]
        self._forget((low, high))
        version = self._read(record)
        self.versions[low, high] = state, version
        self.size += version.size
        while self.size > self.limit and len(self.versions) > 1:
            self._forget(next(iter(self.versions)))
        return version

    def _forget(self, slot: tuple[int, int]) -> None:
        if cached := self.versions.pop(slot, None):
            self.size -= cached[1].size

    def _read(self, record: Path) -> SharedVersion:
        """Read a version's files, if they are those of its record."""
        content = json.loads(record.read_bytes())
        model, number = content["model"], content["version"]
        if not (isinstance(number, int) and number > 0 and MODEL_NAME.fullmatch(model)):
            raise RequestError(f"{record.name} is not a record of a model")
        folder = self.repository / model / str(number)
        contents = {}
        for name, expected in content["sha256"].items():
            if Path(name).name != name:
                raise RequestError(f"{record.name} is not a record of a model")
            contents[name] = (folder / name).read_bytes()
            if hashlib.sha256(contents[name]).hexdigest() != expected:
                raise RequestError(f"{name} of version {number} is damaged: deploy the model again")
        encoder = contents.pop(ENCODER)
        version = Version(self.code, number, json.loads(encoder))
        for module in self.in_process:
            opened = module.open_model(folder, len(version.encoder.column_names))
            if opened is not None:
                size = ENCODER_FACTOR * len(encoder) + sum(map(len, contents.values()))
                return SharedVersion(model, version, opened, size)
        raise RequestError(f"the model of version {number} cannot be read: deploy it again")


def _table_slot(slots: dict[str, int]) -> tuple[str, int]:
    """Return the output with the predictions and its number; RequestError: the outputs name no version."""
    for output in ("probabilities", "value"):
        if set(slots) == {output, "version"}:
            return output, slots[output]
    raise RequestError(UNNAMED)


def _module(path: Path) -> Any:  # noqa: ANN401
    package = sys.modules.setdefault("dmls_table", ModuleType("dmls_table"))
    package.__path__ = [str(path.parent)]  # for relative imports
    spec = importlib.util.spec_from_file_location(f"dmls_table.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise pb_utils.TritonModelException(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their own module
    spec.loader.exec_module(module)
    return module
