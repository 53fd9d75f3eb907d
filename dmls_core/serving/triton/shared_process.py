"""Write ``config.pbtxt`` of the model that many small models share, and of the ensembles in front of it.

The shared model is one Python process. Each model keeps its names: ``<team>.<job>`` and its table endpoint
are ensembles of one step, the shared model. A step cannot carry a constant, so the names of the step's
tensors say which model answers: every version has a ``Slot``, two numbers, and the shared model has a tensor
for each number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from dmls_core.data.encoder import Encoder, NumberFeature
from dmls_core.serving.triton.model_config import (
    BATCHING,
    IN_PROCESS,
    LABEL,
    MAX_BATCH_SIZE,
    NOTES,
    PROBABILITIES,
    VALUE,
    VERSION,
    ModelShape,
    matrices,
    quoted,
    table_name,
    value_parameters,
)

SHARED = "dmls-shared"
"""Name of the shared model in Triton: no job's model has a name without a dot."""

CODE_VERSION = 1
"""Version of the shared model in Triton; another release of DMLS replaces its files."""

LOW, HIGH = 1024, 64
"""Numbers of a slot: ``LOW`` times ``HIGH`` versions have one."""

COLUMNS = 128
"""Most columns of numbers, and of texts and dates, of a model that shares a process."""

MEMORY_BYTES = 1 << 30
"""Size of the models in the process's memory, above which it forgets those that were not used for longest."""

LARGEST_BYTES = 64 << 20
"""Size of the largest model that shares a process."""

HUNG_SECONDS = 60
"""Time for one request, after which the process ends: while it hangs, no model in it answers."""

_SHARED_CONFIG = """\
name: "{name}"
backend: "python"
max_batch_size: {max_batch_size}
input [
{inputs}
]
output [
{outputs}
]
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
{batching}response_cache {{ enable: false }}
parameters [
  {{ key: "memory_bytes" value: {{ string_value: "{memory}" }} }},
  {{ key: "hung_seconds" value: {{ string_value: "{hung}" }} }}
]
"""

_FRONT_CONFIG = """\
name: {name}
platform: "ensemble"
max_batch_size: {max_batch_size}
input [
{inputs}
]
output [
{outputs}
]
version_policy {{ specific {{ versions: [ {version} ] }} }}
parameters [
{parameters}
]
ensemble_scheduling {{ step [ {{
  model_name: "{shared}"
  model_version: -1
{maps}
}} ] }}
"""


@dataclass(frozen=True, slots=True)
class Slot:
    """What identifies a version of a model to the shared process."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """An input or output of an ensemble, and the tensor of the shared model that it is."""

    name: str
    data_type: str
    size: int
    inner: str


def shared_code(in_process: Mapping[str, str]) -> dict[str, str]:
    """Return the files of the shared model's version folder, by name; ``in_process`` as in ``table_code``."""
    table, data = resources.files("dmls_core.serving.endpoint"), resources.files("dmls_core.data")
    return {
        "model.py": (table / "shared_process.py").read_text("utf-8"),
        **{
            name: (table / name).read_text("utf-8")
            for name in ("counters.py", "private_memory.py", "table_versions.py")
        },
        **{name: (data / name).read_text("utf-8") for name in ("encoder.py", "moments.py", "row_notes.py")},
        **{f"{IN_PROCESS}{name}.py": source for name, source in in_process.items()},
        # In place of a folder that Python would write: a changed folder has Triton start the process again.
        "__pycache__": "",
    }


def shared_config() -> str:
    """Return the configuration of the shared model; it is the same for every repository."""
    inputs = [(f"input_{number}", "TYPE_FP32", -1) for number in range(HIGH)]
    inputs += [("numbers", "TYPE_FP64", -1), ("texts", "TYPE_STRING", -1), ("dates", "TYPE_STRING", -1)]
    for number in range(COLUMNS):
        inputs += [(f"number_{number}", "TYPE_FP64", 1), (f"text_{number}", "TYPE_STRING", 1)]
    outputs = [(LABEL, "TYPE_STRING", 1), (NOTES, "TYPE_STRING", 1)]
    outputs += [(f"{VERSION}_{number}", "TYPE_INT64", 1) for number in range(HIGH)]
    for number in range(LOW):
        outputs += [(f"output_{number}", "TYPE_FP32", -1), (f"{PROBABILITIES}_{number}", "TYPE_FP32", -1)]
        outputs.append((f"{VALUE}_{number}", "TYPE_FP32", 1))
    return _SHARED_CONFIG.format(
        name=SHARED,
        max_batch_size=MAX_BATCH_SIZE,
        inputs=_lines(inputs, " optional: true"),
        outputs=_lines(outputs),
        batching=BATCHING,
        memory=MEMORY_BYTES,
        hung=HUNG_SECONDS,
    )


def fits(encoder: Encoder) -> bool:
    """Return whether the shared model has enough inputs for a model's columns."""
    numbers = sum(isinstance(feature, NumberFeature) for feature in encoder.features)
    return max(numbers, len(encoder.features) - numbers) <= COLUMNS


def forest_front(name: str, shape: ModelShape, version: int, slot: Slot) -> str:
    """Return the configuration of an ensemble that answers as the model ``name`` does in its own backend."""
    return _front(
        name,
        version,
        [_Tensor("input__0", "TYPE_FP32", shape.n_features, f"input_{slot.high}")],
        [_Tensor("output__0", "TYPE_FP32", shape.n_outputs, f"output_{slot.low}")],
        {"slot": f"{slot.low} {slot.high}"},
    )


def table_front(name: str, encoder: Encoder, version: int, slot: Slot) -> str:
    """Return the configuration of an ensemble that answers as the table endpoint of ``name``.

    It has the inputs, outputs and parameters of the table endpoint of a model with one version.
    """
    inputs, counts = [], {"number": 0, "text": 0}
    for feature in encoder.features:
        column_type = "number" if isinstance(feature, NumberFeature) else "text"
        inner = f"{column_type}_{counts[column_type]}"
        counts[column_type] += 1
        inputs.append(_Tensor(feature.name, _data_type(column_type), 1, inner))
    packed = matrices(encoder)
    for matrix, columns in packed.items():
        column_type = matrix.partition("-")[0]
        inputs.append(_Tensor(matrix, _data_type(column_type), len(columns), column_type))
    labels = encoder.target.labels
    version_output = _Tensor(VERSION, "TYPE_INT64", 1, f"{VERSION}_{slot.high}")
    if labels is None:
        outputs = [_Tensor(VALUE, "TYPE_FP32", 1, f"{VALUE}_{slot.low}"), version_output]
    else:
        probabilities = _Tensor(PROBABILITIES, "TYPE_FP32", len(labels), f"{PROBABILITIES}_{slot.low}")
        outputs = [_Tensor(LABEL, "TYPE_STRING", 1, LABEL), probabilities, version_output]
    # A step must return each output that an ensemble maps: without notes, their texts are empty.
    outputs.append(_Tensor(NOTES, "TYPE_STRING", 1, NOTES))
    parameters = {
        "forest": name,
        "target": encoder.target.name,
        "versions": json.dumps([{"columns": encoder.feature_names, "labels": labels}], ensure_ascii=False),
        "matrices": json.dumps(packed, ensure_ascii=False),
        **value_parameters(encoder),
    }
    return _front(table_name(name), version, inputs, outputs, parameters)


def _data_type(column_type: str) -> str:
    return "TYPE_FP64" if column_type.startswith("number") else "TYPE_STRING"


def _front(
    name: str, version: int, inputs: Sequence[_Tensor], outputs: Sequence[_Tensor], parameters: dict[str, str]
) -> str:
    maps = [
        (direction, tensor)
        for direction, tensors in (("input", inputs), ("output", outputs))
        for tensor in tensors
    ]
    optional = " optional: true" if len(parameters) > 1 else ""
    return _FRONT_CONFIG.format(
        name=quoted(name),
        max_batch_size=MAX_BATCH_SIZE,
        inputs=_lines([(t.name, t.data_type, t.size) for t in inputs], optional),
        outputs=_lines([(t.name, t.data_type, t.size) for t in outputs]),
        version=version,
        parameters=",\n".join(
            f"  {{ key: {quoted(key)} value: {{ string_value: {quoted(text)} }} }}"
            for key, text in parameters.items()
        ),
        shared=SHARED,
        maps="\n".join(
            f"  {direction}_map {{ key: {quoted(t.inner)} value: {quoted(t.name)} }}" for direction, t in maps
        ),
    )


def _lines(tensors: Iterable[tuple[str, str, int]], more: str = "") -> str:
    return ",\n".join(
        f"  {{ name: {quoted(name)} data_type: {data_type} dims: [ {size} ]{more} }}"
        for name, data_type, size in tensors
    )
