"""Check a model before Triton loads it: a damaged file can crash or hang the whole server.

The files must have the SHA-256 that ``model.json`` records. Then a child process with limits on time and
memory reads them, as the model's serving format says, and compares them with ``model.json``.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dmls_core import sandbox
from dmls_core.errors import DmlsError, RejectedModelError, ServingError, UserError, ValidationIssue
from dmls_core.sandbox import Limits, SandboxError
from dmls_core.serving.formats.base import format_of, serving_format
from dmls_core.settings import ServingLimits

MODEL_JSON = "model.json"

_MEMORY, _MEMORY_PER_BYTE = 512 << 20, 4
_SECONDS, _BYTES_PER_SECOND = 30.0, 10_000_000

_NICE, _PATIENCE = 5, 3
"""A lower priority than that of a Triton on the same machine, and so a longer time to wait."""

_MEGA = 1e6


def check_model(folder: Path, model: str) -> None:
    """Check the model in a ``model/`` folder or in a version's folder; ``model`` names it in messages.

    Raises:
        UserError: no installed package serves its format.
        ServingError: it is damaged, or not the model that ``model.json`` describes. The message names what
            was found and what was expected.
    """
    model_json = check_model_json(read_model_json(folder, model), f"{MODEL_JSON} of {model}")
    serving = format_of(model_json, model)
    recorded, size = serving.recorded_hashes(model_json), 0
    for file in serving.files:
        try:
            with (folder / file).open("rb") as reading:
                digest = hashlib.file_digest(reading, "sha256").hexdigest()
                size += reading.tell()
        except OSError as error:
            raise ServingError(f"cannot read {file} of {model}: {error}") from error
        if digest != recorded.get(file, digest):
            raise RejectedModelError(
                f"{file} of {model} is damaged: its SHA-256 is {digest}, {MODEL_JSON} records "
                f"{recorded[file]}; train the model again"
            )
    seconds = _SECONDS + size / _BYTES_PER_SECOND
    limits = Limits(
        memory=_MEMORY + _MEMORY_PER_BYTE * size,
        seconds=_PATIENCE * seconds,
        cpu_seconds=int(seconds),
        nice=_NICE,
    )
    files = f"{', '.join(serving.files)} of {model}"
    try:
        inspected = sandbox.run(
            inspect_model, serving.name, str(folder), limits=limits, file=serving.files[0]
        )
    except (SandboxError, ServingError) as error:
        raise ServingError(f"{files} is damaged; Triton did not load it: {error}") from error
    classes = model_json["n_outputs"] if model_json["task"] == "classification" else 1
    expected = {"task": model_json["task"], "features": model_json["n_features"], "classes": classes}
    if wrong := [name for name in expected if inspected[name] != expected[name]]:
        pairs = "; ".join(f"{name}: found {inspected[name]}, expected {expected[name]}" for name in wrong)
        raise RejectedModelError(f"{files} is not the model that {MODEL_JSON} describes: {pairs}")


def inspect_model(name: str, folder: str) -> dict[str, Any]:
    """Read a model's files as its serving format says; runs in the sandbox.

    Raises:
        ServingError: they are damaged.
    """
    try:
        return serving_format(name).inspect(Path(folder))
    except (DmlsError, MemoryError):
        raise
    except Exception as error:  # whatever the library meets in a damaged file
        raise ServingError(f"{type(error).__name__}: {error}") from error


def check_size(folder: Path, model: str) -> None:
    """Reject a model (``model/`` folder of a run) that no backend serves, or that is too large to be loaded.

    Raises:
        UserError: no installed package serves its format, or its files exceed the limit.
        ServingError: a file is missing, or ``model.json`` is damaged.
    """
    serving = format_of(read_model_json(folder, model), model)
    limit = ServingLimits.from_environment().checkpoint_bytes
    try:
        size = serving.size(folder)
    except OSError as error:
        raise ServingError(f"cannot read the files of {model}: {error}") from error
    if size <= limit:
        return
    raise UserError(
        ValidationIssue(
            f"{model} is too large to be served; the served version stays",
            found=f"{', '.join(serving.files)} of {size / _MEGA:,.0f} MB",
            expected=f"at most {limit / _MEGA:,.0f} MB (DMLS_SERVING_CHECKPOINT_BYTES)",
            hint=f"{serving.size_hint(folder, size, limit)}raise the limit: Triton holds the model twice "
            "while it goes live",
        )
    )


def read_model_json(folder: Path, model: str) -> dict[str, Any]:
    """Return a folder's ``model.json``; raise ServingError if it is missing or damaged."""
    path = folder / MODEL_JSON
    try:
        model_json = json.loads(path.read_bytes())
    except OSError as error:
        raise ServingError(f"cannot read {MODEL_JSON} of {model}: {error}") from error
    except ValueError as error:
        raise RejectedModelError(f"{MODEL_JSON} of {model} is damaged: it is not JSON ({error})") from error
    if not isinstance(model_json, dict):
        raise RejectedModelError(
            f"{MODEL_JSON} of {model} is damaged: expected an object, found {type(model_json).__name__}"
        )
    return model_json


def check_model_json(model_json: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the content of ``model.json`` if a server can be configured by it, or raise ServingError."""
    expected = "expected task (classification or regression), and n_features and n_outputs above 0"
    task, numbers = model_json.get("task"), [model_json.get(key) for key in ("n_features", "n_outputs")]
    if task not in ("classification", "regression") or not all(type(n) is int and n > 0 for n in numbers):
        raise RejectedModelError(
            f"{source} is damaged: found task {task!r}, n_features {numbers[0]!r}, n_outputs {numbers[1]!r}; "
            f"{expected}"
        )
    return model_json
