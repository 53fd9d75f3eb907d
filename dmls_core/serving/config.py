"""``config.pbtxt`` for Triton's FIL backend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dmls_core.errors import ServingError
from dmls_core.store import layout

CONFIG_FILE = "config.pbtxt"
CHECKPOINT_FILE = "checkpoint.tl"

BOOKKEEPING = ".dmls"
"""Folder of a repository that Triton does not look into."""

CANDIDATE = ".candidate"
"""What the name of a model's candidate adds, which Triton serves beside it until it proved itself."""

CHALLENGER = ".challenger"
"""What the name of a model's challenger adds, which answers a share of the table endpoint's requests."""

MAX_BATCH_SIZE = 8192
"""Most rows that one request may carry."""

InstanceKind = Literal["KIND_AUTO", "KIND_CPU"]

# A version takes requests once it has answered the warm-up. Requests do not wait to be batched: those are
# that came while others were answered. output_class is what FIL reads up to release 25.08, is_classifier from
# 25.09 on, and a classifier without a threshold is refused by both.
_TEMPLATE = """\
name: "{name}"
backend: "fil"
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
parameters [
  {{ key: "model_type" value: {{ string_value: "treelite_checkpoint" }} }},
  {{ key: "predict_proba" value: {{ string_value: "{classifier}" }} }},
  {{ key: "output_class" value: {{ string_value: "{classifier}" }} }},
  {{ key: "is_classifier" value: {{ string_value: "{classifier}" }} }},
  {{ key: "threshold" value: {{ string_value: "0.5" }} }},
  {{ key: "storage_type" value: {{ string_value: "AUTO" }} }}
]
"""
_VERSIONS = re.compile(r"^version_policy \{ specific \{ versions: \[ ([0-9, ]+) \] \} \}$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What Triton must be told of a model.

    Attributes:
        n_features: columns of ``input__0``.
        n_outputs: columns of ``output__0``: classes, or 1 for a regression.
        classifier: whether ``output__0`` holds probabilities.
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
    """How a model answers several requests at once; the defaults are the simplest.

    Attributes:
        instances: of the forest, and processes of its table endpoint.
        batching: whether requests that came while others were answered are answered together.
    """

    instances: int = 1
    batching: bool = True


SIMPLEST = Scaling()


def check_model_name(name: str) -> str:
    """Return ``name`` if it is ``<team>.<job>``, or its candidate's or challenger's.

    Raises:
        ServingError: it is anything else, so that no name can leave its folder or its quotes.
    """
    team, dot, job = name.removesuffix(CANDIDATE).removesuffix(CHALLENGER).partition(".")
    if not (dot and layout.is_name(team) and layout.is_name(job)):
        raise ServingError(f"{name!r} is no model name: expected <team>.<job>")
    return name


def quoted(text: str) -> str:
    """Return any text as a string of Triton's configuration language, with its quotes."""
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '\\"' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(plain)}"'


def fil_config(
    name: str,
    shape: ModelShape,
    *,
    versions: Sequence[int],
    kind: InstanceKind = "KIND_AUTO",
    scaling: Scaling = SIMPLEST,
) -> str:
    """Write the configuration of a Treelite checkpoint.

    Args:
        name: ``<team>.<job>``.
        shape: the model's inputs and outputs.
        versions: the versions to serve; Triton touches no other one.
        kind: ``KIND_AUTO`` takes a GPU where there is one; ``KIND_GPU`` would fail without.
        scaling: how it answers several requests at once.

    Raises:
        ServingError: the name is not allowed, or there is no version.
    """
    if not versions or min(versions) < 1:
        raise ServingError(f"{name}: versions count from 1, got {list(versions)}")
    return _TEMPLATE.format(
        name=check_model_name(name),
        max_batch_size=MAX_BATCH_SIZE,
        n_features=shape.n_features,
        n_outputs=shape.n_outputs,
        versions=", ".join(map(str, versions)),
        instances=scaling.instances,
        kind=kind,
        batching=BATCHING if scaling.batching else "",
        classifier=str(shape.classifier).lower(),
    )


def configured_versions(config: str) -> tuple[int, ...]:
    """Return the versions that a configuration of ``fil_config`` serves.

    Raises:
        ServingError: the text was not written by ``fil_config``.
    """
    found = _VERSIONS.search(config)
    if not found:
        raise ServingError("config.pbtxt has no version_policy that DMLS wrote")
    return tuple(int(version) for version in found[1].split(","))
