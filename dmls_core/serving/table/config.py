"""``config.pbtxt`` of the table endpoint, and what its version folders hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from dmls_core.data.encoder import CategoryFeature, Encoder
from dmls_core.serving.config import BATCHING, MAX_BATCH_SIZE, SIMPLEST, Scaling, check_model_name, quoted

SUFFIX = ".table"
"""What the endpoint's name adds to the forest's: no job's name holds a dot."""

LABEL, PROBABILITIES, VALUE, VERSION = "label", "probabilities", "value", "version"

_TEMPLATE = """\
name: {name}
backend: "python"
max_batch_size: {max_batch_size}
input [
{inputs}
]
output [
{outputs}
]
version_policy {{ specific {{ versions: [ {version} ] }} }}
instance_group [ {{ count: {instances} kind: KIND_CPU }} ]
{batching}response_cache {{ enable: false }}
parameters [
  {{ key: "forest" value: {{ string_value: {forest} }} }},
  {{ key: "target" value: {{ string_value: {target} }} }},
  {{ key: "versions" value: {{ string_value: {versions} }} }}{more}
]
"""


def table_name(model: str) -> str:
    """Return the name of the table endpoint of ``<team>.<job>``.

    Raises:
        ServingError: ``model`` is no such name.
    """
    return check_model_name(model) + SUFFIX


def table_files(encoder: Mapping[str, Any]) -> dict[str, str]:
    """Return the content of a version's folder of the table endpoint, by file name.

    The code is DMLS's own, the same for every model; the encoder is data.

    Args:
        encoder: the version's ``encoder.json``.
    """
    return {
        "model.py": (resources.files("dmls_core.serving.table") / "model.py").read_text("utf-8"),
        "encoder.py": (resources.files("dmls_core.data") / "encoder.py").read_text("utf-8"),
        "log.py": (resources.files("dmls_core.serving.table") / "log.py").read_text("utf-8"),
        "encoder.json": json.dumps(encoder, ensure_ascii=False, allow_nan=False),
    }


def table_config(
    model: str,
    encoders: Mapping[int, Encoder],
    *,
    version: int,
    scaling: Scaling = SIMPLEST,
    parameters: Mapping[str, str] | None = None,
) -> str:
    """Write the configuration of the table endpoint of a model.

    The endpoint answers with whichever of the versions Triton serves of the forest at that moment, and
    changes from one to another by itself. Its inputs are the columns of all of them, each optional to
    Triton; the version that answers says which of its own are missing. A column that is a number in one
    version and a category in another is what ``version`` takes it for. A version of another kind of target
    cannot give the same outputs and is left out.

    Args:
        model: the forest, ``<team>.<job>``.
        encoders: by version; the folder of each must be in the repository.
        version: the version to be served, whose folder Triton loads; ``encoders`` holds it.
        scaling: how it answers several requests at once.
        parameters: further ones for the endpoint, by key.

    Raises:
        ServingError: the name is not allowed.
    """
    main = encoders[version]
    labels = main.target.labels
    others = sorted((v for v in encoders if v != version), reverse=True)
    alike = [v for v in others if (encoders[v].target.labels is None) == (labels is None)]
    about = [
        {"version": v, "columns": encoders[v].feature_names, "labels": encoders[v].target.labels}
        for v in (version, *alike)
    ]
    kinds: dict[str, str] = {}
    for number in (version, *alike):
        for feature in encoders[number].features:
            kinds.setdefault(
                feature.name, "TYPE_STRING" if isinstance(feature, CategoryFeature) else "TYPE_FP64"
            )
    return _TEMPLATE.format(
        name=quoted(table_name(model)),
        max_batch_size=MAX_BATCH_SIZE,
        inputs=",\n".join(
            f"  {{ name: {quoted(name)} data_type: {kind} dims: [ 1 ] optional: true }}"
            for name, kind in kinds.items()
        ),
        outputs=",\n".join(_outputs({len(encoders[v].target.labels or ()) for v in (version, *alike)})),
        version=version,
        instances=scaling.instances,
        batching=BATCHING if scaling.batching else "",
        forest=quoted(model),
        target=quoted(main.target.name),
        versions=quoted(json.dumps(about, ensure_ascii=False)),
        more="".join(
            f",\n  {{ key: {quoted(key)} value: {{ string_value: {quoted(text)} }} }}"
            for key, text in (parameters or {}).items()
        ),
    )


def _outputs(classes: set[int]) -> list[str]:
    """Return the lines of the outputs; two versions may have different numbers of classes."""
    wide = classes.pop() if len(classes) == 1 else -1
    tensors = {VERSION: ("TYPE_INT64", 1)}
    if wide == 0:
        tensors = {VALUE: ("TYPE_FP32", 1), **tensors}
    else:
        tensors = {LABEL: ("TYPE_STRING", 1), PROBABILITIES: ("TYPE_FP32", wide), **tensors}
    return [
        f"  {{ name: {quoted(name)} data_type: {kind} dims: [ {dim} ] }}"
        for name, (kind, dim) in tensors.items()
    ]
