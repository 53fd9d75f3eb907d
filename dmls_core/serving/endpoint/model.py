"""The table endpoint: a table's own columns in, label and probabilities out. Run by Triton's Python backend.

One version folder of ``<team>.<job>.table`` holds copies of this file and of the others that it imports. For
each version of the forest there is a folder with its ``encoder.json``, which is data. It imports nothing else
of DMLS.

Rows are encoded here and handed to the forest ``<team>.<job>`` within the server. Few rows are predicted
here, with a copy of the forest, if the server serves its version. The forest is always called by a version's
number, with rows of this version's encoder: when the forest changes version, this endpoint changes with it,
without being loaded again. It finds the encoders of later versions in the repository.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sys
import threading
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from table_versions import Answer, Version, texts_of  # type: ignore[import-not-found]

ROUNDS = 3
"""Rounds through all versions: one may disappear while another appears."""

LOG_FOLDER = "DMLS_INFERENCE_LOG"
"""Environment variable with the folder of the inference log; without it nothing is logged."""
OWN_REQUESTS = "dmls."
"""Prefix of the ids of DMLS's own requests, which the live version answers and the log leaves out."""
OF_CANDIDATE = "dmls.candidate."
"""Prefix of the ids, before the version, of requests that the candidate answers."""
FIRST_ROW = "first_row"
"""Parameter of a request: the position of its first row among all rows with the same id."""
NOTES = "notes"
"""Parameter of a request that asks for notes on its rows."""
CANDIDATE = ".candidate"
IN_MEMORY = 2
"""Versions of which this process keeps a copy of the forest: the live one and the one before."""


class TritonPythonModel:
    """One instance of the endpoint of one model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the encoder of every version in the repository."""
        # Triton's own function takes three times as long. It is looked up there for each tensor.
        pb_utils.deserialize_bytes_tensor = texts_of
        config = json.loads(args["model_config"])
        parameters = {key: value["string_value"] for key, value in config["parameters"].items()}
        self.forest = parameters["forest"]
        self.matrices: dict[str, list[str]] = json.loads(parameters["matrices"])
        self.folder = Path(args["model_repository"])
        version_folder = self.folder / args["model_version"]
        _module(version_folder / "private_memory.py").make_memory_private()
        self.code = _module(version_folder / "encoder.py")
        modules = version_folder.glob("in_process_*.py") if hasattr(pb_utils, "is_model_ready") else ()
        self.in_process = [_module(path) for path in sorted(modules)]
        self.versions: list[Version] = []
        self._find_versions()
        if self.versions:
            self._open(self.versions[0])
        counters = _module(version_folder / "counters.py")
        self.counts = counters.Counts()
        self.row_notes = _module(version_folder / "row_notes.py")
        kinds = () if self.forest.endswith(CANDIDATE) else self.row_notes.KINDS
        self.noted = counters.Noted(self.counts, self.forest, kinds)
        self.log = self._log(version_folder, os.environ.get(LOG_FOLDER), parameters.get("log"))
        self.canary = self._canary(parameters.get("canary"))

    def _log(self, version_folder: Path, log_folder: str | None, options: str | None) -> Any:  # noqa: ANN401
        if not (log_folder and options):
            return None
        log = _module(version_folder / "inference_log.py").RequestLog(
            Path(log_folder) / self.forest, **json.loads(options)
        )
        labels = {"model": self.forest}
        text = "Rows written into the inference log."
        self.counts.add("dmls_logged_rows_total", text, labels, log, "written")
        text = "Rows sampled for the inference log and discarded."
        self.counts.add("dmls_log_dropped_rows_total", text, labels, log, "dropped")
        return log

    def _canary(self, options: str | None) -> Challenger | None:
        """Return the challenger, if there is one."""
        if not options:
            return None
        canary = Challenger(self.versions, **json.loads(options))
        if canary.version:
            self._open(canary.version)
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
        tables = [self._columns(request) for request in requests]
        ids = [request.request_id() for request in requests]
        tried = self.canary.answer(ids, tables) if self.canary else {}
        shadows = tried if self.canary and self.canary.shadow else {}
        answers: list[Any] = [None if i in shadows else tried.get(i) for i in range(len(tables))]
        for i, request_id in enumerate(ids):
            if request_id.startswith(OF_CANDIDATE):
                answers[i] = self._answer_of_candidate(request_id.removeprefix(OF_CANDIDATE), tables[i])
        mine = [i for i, answer in enumerate(answers) if answer is None]
        if mine:
            # One request to the forest is for all of them: it is part of the first one's trace.
            asked = self._answer([tables[i] for i in mine], requests[mine[0]].trace())
            for i, answer in zip(mine, asked, strict=True):
                answers[i] = answer
        try:
            for i, shadow in shadows.items():
                self.canary.compare(answers[i], shadow)  # type: ignore[union-attr]
            for i, request in enumerate(requests):
                self._observe(request, tables[i], answers[i], shadows.get(i))
            self.counts.update_sometimes()
        except Exception as error:  # noqa: BLE001  logging must not fail a request
            pb_utils.Logger.log_warn(f"{self.forest}: requests were not logged or noted: {error}")
        return [answer.response() for answer in answers]

    def _observe(self, request: Any, table: dict[str, Any], answer: Answer, shadow: Answer | None) -> None:  # noqa: ANN401
        """Note what is unlike the training in a user's request, and log it."""
        request_id = request.request_id()
        if answer.rows is None or request_id.startswith(OWN_REQUESTS):
            return
        parameters = json.loads(request.parameters() or "{}")
        notes = answer.version.find_notes(table, answer.rows, self.row_notes)
        if notes:
            self.noted.count(notes.counts)
            if parameters.get(NOTES) is True:
                answer.notes = notes.by_row()
        if self.log:
            first_row = int(parameters.get(FIRST_ROW, 0))
            self._log_request(request_id, first_row, table, answer, shadow)

    def finalize(self) -> None:
        """Write the remaining log entries and metrics."""
        if self.log:
            self.log.close()
        self.counts.update()

    def _columns(self, request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return a request's columns by name, each of shape (n_rows,); texts are bytes."""
        columns: dict[str, Any] = {}
        for tensor in request.inputs():
            name, values = tensor.name(), tensor.as_numpy()
            if name in self.matrices:
                columns.update(zip(self.matrices[name], values.T, strict=True))
            else:
                columns[name] = values.reshape(-1)
        return columns

    def _log_request(
        self,
        request_id: str,
        first_row: int,
        table: dict[str, Any],
        answer: Answer,
        shadow: Answer | None,
    ) -> None:
        version = answer.version
        if version is None:
            return
        other = None
        if shadow is not None and shadow.version is not None:
            other = (shadow.version.number, shadow.version.texts, shadow.outputs)
        self.log.add(request_id, version.number, table, version.texts, answer.outputs, other, first_row)

    def _answer(self, tables: list[Any], trace: Any) -> list[Answer]:  # noqa: ANN401
        """Return the live version's answer to each table."""
        refused: str = ""
        for _ in range(ROUNDS):
            unfit: list[Any] = []
            for version in list(self.versions):
                encoded = [version.encode(table) for table in tables]
                if all(isinstance(part, str) for part in encoded):
                    unfit = unfit or encoded  # unless they are the columns of another live version
                    continue
                outputs, refused = version.ask(self.forest, encoded, trace)
                if outputs is None:
                    continue
                if version is not self.versions[0]:
                    self._went_live(version)
                answers: list[Answer] = version.split(encoded, outputs)
                return answers
            if unfit:
                return [Answer(error=error) for error in unfit]
            self._find_versions()
        refused = refused or f"the repository has no version of {self.forest}"
        return [Answer(error=refused, code=pb_utils.TritonError.UNAVAILABLE) for _ in tables]

    def _answer_of_candidate(self, number: str, table: Any) -> Answer:  # noqa: ANN401
        """Return the answer of a candidate before it goes live: DMLS sends it the golden rows."""
        candidates = [version for version in self.versions if str(version.number) == number]
        if not candidates:
            self._find_versions()
            candidates = [version for version in self.versions if str(version.number) == number]
        error = f"there is no candidate {number}"
        for version in candidates:
            self._open_soon(version)
            encoded = version.encode(table)
            if isinstance(encoded, str):
                return Answer(error=encoded)
            outputs, error = version.ask(self.forest + CANDIDATE, [encoded])
            if outputs is not None:
                return Answer(version, outputs)
        return Answer(error=error, code=pb_utils.TritonError.UNAVAILABLE)

    def _find_versions(self) -> None:
        """Read the encoders that are new in the repository, and forget those that were removed."""
        there = sorted(
            (int(path.parent.name) for path in self.folder.glob("[1-9]*/encoder.json")), reverse=True
        )
        versions = [version for version in self.versions if version.number in there]
        numbers = {version.number for version in versions}
        for number in there:
            if number not in numbers:
                try:
                    encoder = json.loads((self.folder / str(number) / "encoder.json").read_bytes())
                    versions.append(Version(self.code, number, encoder))
                except (OSError, ValueError, KeyError, TypeError) as error:
                    pb_utils.Logger.log_warn(f"{self.forest} version {number} has no encoder: {error!r}")
        self.versions = versions

    def _went_live(self, version: Version) -> None:
        """Ask a version first from now on."""
        self.versions = [version, *(other for other in self.versions if other is not version)]
        self._open_soon(version)
        for other in self.versions[IN_MEMORY:]:
            if self.canary is None or other is not self.canary.version:
                other.own, other.opened = None, False

    def _open_soon(self, version: Version) -> None:
        """Open the copy of a version's forest; requests are answered meanwhile."""
        if not version.opened:
            version.opened = True
            threading.Thread(target=self._open, args=[version], daemon=True).start()

    def _open(self, version: Version) -> None:
        version.opened = True
        folder = self.folder.parent / self.forest / str(version.number)
        for module in self.in_process:
            version.own = version.own or module.open_model(folder, len(version.encoder.column_names))


class Challenger:
    """A version that receives a share of the requests; if it does not answer, the live version does."""

    def __init__(self, versions: list[Version], model: str, version: int, share: float, shadow: bool) -> None:
        self.forest, self.number, self.share, self.shadow = model, version, share, shadow
        self.version = next((candidate for candidate in versions if candidate.number == version), None)
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
    package = sys.modules.setdefault("dmls_table", ModuleType("dmls_table"))
    package.__path__ = [str(path.parent)]  # for relative imports
    spec = importlib.util.spec_from_file_location(f"dmls_table.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise pb_utils.TritonModelException(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their own module
    spec.loader.exec_module(module)
    return module
