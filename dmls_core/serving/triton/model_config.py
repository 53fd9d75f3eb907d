"""Write ``config.pbtxt`` of a model and of its table endpoint (Triton's Python backend)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from dmls_core.data.encoder import CategoryFeature, DateFeature, Encoder, NumberFeature
from dmls_core.errors import ServingError
from dmls_core.store import layout

CONFIG_FILE = "config.pbtxt"

BOOKKEEPING = ".dmls"
"""Folder of a repository that Triton ignores."""

CANDIDATE = ".candidate"
"""Suffix of a candidate's name: Triton serves it next to the model until it is verified."""

CHALLENGER = ".challenger"
"""Suffix of a challenger's name: it answers a share of the table endpoint's requests."""

MAX_BATCH_SIZE = 8192

InstanceKind = Literal["KIND_AUTO", "KIND_CPU"]

# A version accepts requests once it has answered the warm-up. Batches hold the requests that arrived while
# others were answered; none waits for a batch.
_MODEL_CONFIG = """\
name: "{name}"
backend: "{backend}"
max_batch_size: {max_batch_size}
input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ {n_features} ] }} ]
output [ {{ name: "output__0" data_type: TYPE_FP32 dims: [ {n_outputs} ] }} ]
version_policy {{ specific {{ versions: [ {versions} ] }} }}
instance_group [ {{ count: {instances} kind: {kind} }} ]
{batching}response_cache {{ enable: false }}
model_warmup [ {{
  name: "one_row" batch_size: 1
  inputs {{ key: "input__0" value {{ data_type: TYPE_FP32 dims: [ {n_features} ] zero_data: true }} }}
}} ]
{parameters}"""
_VERSIONS = re.compile(r"^version_policy \{ specific \{ versions: \[ ([0-9, ]+) \] \} \}$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Columns of ``input__0`` and of ``output__0`` (classes, or 1 for a regression) in Triton.

    A ``classifier`` returns probabilities.
    """

    n_features: int
    n_outputs: int
    classifier: bool

    def __post_init__(self) -> None:
        if self.n_features < 1 or self.n_outputs < (2 if self.classifier else 1):
            raise ServingError(f"a model cannot have this shape: {self}")


BATCHING = "dynamic_batching { }\n"


@dataclass(frozen=True, slots=True)
class Scaling:
    """How a model answers concurrent requests; the defaults are the simplest scaling.

    ``instances``: of the forest, and processes of its table endpoint. ``batching``: requests that arrived
    meanwhile are answered together.
    """

    instances: int = 1
    batching: bool = True


SIMPLEST = Scaling()


def check_model_name(name: str) -> str:
    """Return ``name`` if it is ``<team>.<job>``, or its candidate's or challenger's.

    Anything else raises ServingError: so no name can leave its folder or its quotes.
    """
    team, dot, job = name.removesuffix(CANDIDATE).removesuffix(CHALLENGER).partition(".")
    if not (dot and layout.is_name(team) and layout.is_name(job)):
        raise ServingError(f"{name!r} is not a model name: expected <team>.<job>")
    return name


def quoted(text: str) -> str:
    """Return a text as a quoted string of Triton's configuration language."""
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '\\"' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(plain)}"'


def model_config(
    name: str,
    backend: str,
    shape: ModelShape,
    *,
    versions: Sequence[int],
    kind: InstanceKind = "KIND_AUTO",
    scaling: Scaling = SIMPLEST,
    parameters: Mapping[str, str] | None = None,
) -> str:
    """Return the configuration of a model for a Triton backend, with the backend's own ``parameters``.

    Triton ignores all versions but ``versions``. ``KIND_AUTO`` uses a GPU if there is one; ``KIND_GPU`` would
    fail without. A name that is not allowed, or no version, raises ServingError.
    """
    if not versions or min(versions) < 1:
        raise ServingError(f"{name}: versions count from 1, got {list(versions)}")
    lines = ",\n".join(
        f"  {{ key: {quoted(key)} value: {{ string_value: {quoted(text)} }} }}"
        for key, text in (parameters or {}).items()
    )
    return _MODEL_CONFIG.format(
        name=check_model_name(name),
        backend=backend,
        max_batch_size=MAX_BATCH_SIZE,
        n_features=shape.n_features,
        n_outputs=shape.n_outputs,
        versions=", ".join(map(str, versions)),
        instances=scaling.instances,
        kind=kind,
        batching=BATCHING if scaling.batching else "",
        parameters=f"parameters [\n{lines}\n]\n" if lines else "",
    )


def configured_versions(config: str) -> tuple[int, ...]:
    """Return the versions that an output of ``model_config`` serves; another text raises ServingError."""
    policy = _VERSIONS.search(config)
    if not policy:
        raise ServingError("config.pbtxt has no version_policy written by DMLS")
    return tuple(int(version) for version in policy[1].split(","))


SUFFIX = ".table"
"""Suffix of the table endpoint's name: no job's name contains a dot."""

LABEL, PROBABILITIES, VALUE, VERSION = "label", "probabilities", "value", "version"
NOTES = "notes"
"""Output that exists if the request's parameter of this name is true and there is something to note: a JSON
list of each row's notes."""

_TABLE_CONFIG = """\
name: {name}
backend: "python"
max_batch_size: {max_batch_size}
input [
{inputs}
]
output [
{outputs}
]
version_policy {{ specific {{ versions: [ {folder} ] }} }}
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
{batching}response_cache {{ enable: false }}
parameters [
  {{ key: "forest" value: {{ string_value: {forest} }} }},
  {{ key: "target" value: {{ string_value: {target} }} }},
  {{ key: "versions" value: {{ string_value: {versions} }} }},
  {{ key: "matrices" value: {{ string_value: {matrices} }} }}{more}
]
"""


def table_name(model: str) -> str:
    """Return the name of the table endpoint of ``<team>.<job>``; another name raises ServingError."""
    return check_model_name(model) + SUFFIX


IN_PROCESS = "in_process_"
"""Beginning of the names of modules with which a process of the endpoint predicts itself."""


def table_code(in_process: Mapping[str, str]) -> dict[str, str]:
    """Return the files of the table endpoint's own folder, by name.

    ``in_process`` has the module of each serving format, by the format's name, that predicts in the endpoint.
    """
    table, data = resources.files("dmls_core.serving.endpoint"), resources.files("dmls_core.data")
    code = ("model.py", "counters.py", "inference_log.py", "private_memory.py", "table_versions.py")
    return {
        **{name: (table / name).read_text("utf-8") for name in code},
        **{name: (data / name).read_text("utf-8") for name in ("encoder.py", "moments.py", "row_notes.py")},
        **{f"{IN_PROCESS}{name}.py": source for name, source in in_process.items()},
        # In place of a folder that Python would write: a changed folder has Triton start the process again.
        "__pycache__": "",
    }


def matrices(encoder: Encoder) -> dict[str, list[str]]:
    """Return the inputs that hold several columns: all numbers, all categories, and all dates.

    Columns are in the encoder's order. The name has a checksum of them: a client that knows other columns, or
    another order, gets an error and no wrong answer.
    """
    inputs: dict[str, list[str]] = {}
    for matrix, feature_type in (
        ("numbers", NumberFeature),
        ("texts", CategoryFeature),
        ("dates", DateFeature),  # not in "texts": its name stays as before for clients that know it
    ):
        if names := [f.name for f in encoder.features if isinstance(f, feature_type)]:
            checksum = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:8]
            inputs[f"{matrix}-{checksum}"] = names
    return inputs


def boolean_columns(encoder: Encoder) -> list[str] | None:
    """Return the columns of numbers that may hold booleans; None for all of a model without ranges."""
    numbers = [feature for feature in encoder.features if isinstance(feature, NumberFeature)]
    if not any(feature.range for feature in numbers):
        return None
    return [feature.name for feature in numbers if feature.booleans]


def _interface(encoder: Encoder) -> object:
    """Return what a version's users see: its columns with their kinds, and its target."""
    return [(feature.name, type(feature)) for feature in encoder.features], encoder.target


def table_config(
    model: str,
    encoders: Mapping[int, Encoder],
    *,
    version: int,
    folder: int,
    scaling: Scaling = SIMPLEST,
    parameters: Mapping[str, str] | None = None,
) -> str:
    """Return the configuration of a model's table endpoint, whose code is in the version folder ``folder``.

    The endpoint answers with the version of the forest that Triton serves at that moment, and switches with
    it. Its inputs are the columns of all versions, each optional to Triton, and the ``matrices`` of
    ``version``, which may take their place; the version that answers reports which of its columns are
    missing. If a column is a number in one version and a text in another, ``version`` decides, a key of
    ``encoders``. A version with another kind of target has other outputs and is left out. If all versions
    have the same columns and labels, no version is named: the next one with these has the same
    configuration, and Triton need not load it.
    """
    main = encoders[version]
    labels = main.target.labels
    others = sorted((v for v in encoders if v != version), reverse=True)
    alike = [v for v in others if (encoders[v].target.labels is None) == (labels is None)]
    entries: list[dict[str, Any]] = [
        {"version": v, "columns": encoders[v].feature_names, "labels": encoders[v].target.labels}
        for v in (version, *alike)
    ]
    if all(_interface(encoders[v]) == _interface(main) for v in alike):
        entries = [{"columns": main.feature_names, "labels": labels}]
    data_types: dict[str, str] = {}
    for number in (version, *alike):
        for feature in encoders[number].features:
            data_types.setdefault(
                feature.name, "TYPE_FP64" if isinstance(feature, NumberFeature) else "TYPE_STRING"
            )
    inputs = [(name, data_type, 1) for name, data_type in data_types.items()]
    packed = matrices(main)
    inputs += [(name, data_types[columns[0]], len(columns)) for name, columns in packed.items()]
    return _TABLE_CONFIG.format(
        name=quoted(table_name(model)),
        max_batch_size=MAX_BATCH_SIZE,
        inputs=",\n".join(
            f"  {{ name: {quoted(name)} data_type: {data_type} dims: [ {size} ] optional: true }}"
            for name, data_type, size in inputs
        ),
        outputs=",\n".join(_outputs({len(encoders[v].target.labels or ()) for v in (version, *alike)})),
        folder=folder,
        instances=scaling.instances,
        batching=BATCHING if scaling.batching else "",
        forest=quoted(model),
        target=quoted(main.target.name),
        versions=quoted(json.dumps(entries, ensure_ascii=False)),
        matrices=quoted(json.dumps(packed, ensure_ascii=False)),
        more="".join(
            f",\n  {{ key: {quoted(key)} value: {{ string_value: {quoted(text)} }} }}"
            for key, text in {**value_parameters(main), **(parameters or {})}.items()
        ),
    )


def value_parameters(encoder: Encoder) -> dict[str, str]:
    """Return what clients read about values: marks of missing ones, and columns that may hold booleans."""
    marks, booleans = encoder.features[0].marks, boolean_columns(encoder)
    return {
        **({"missing": json.dumps(marks, ensure_ascii=False)} if marks else {}),
        **({"booleans": json.dumps(booleans, ensure_ascii=False)} if booleans is not None else {}),
    }


def _outputs(classes: set[int]) -> list[str]:
    """Return the lines of the outputs; versions may differ in their number of classes."""
    wide = classes.pop() if len(classes) == 1 else -1
    tensors = {VERSION: ("TYPE_INT64", 1)}
    if wide == 0:
        tensors = {VALUE: ("TYPE_FP32", 1), **tensors}
    else:
        tensors = {LABEL: ("TYPE_STRING", 1), PROBABILITIES: ("TYPE_FP32", wide), **tensors}
    tensors[NOTES] = ("TYPE_STRING", 1)
    return [
        f"  {{ name: {quoted(name)} data_type: {data_type} dims: [ {dim} ] }}"
        for name, (data_type, dim) in tensors.items()
    ]
