"""``model = ...``: which models a spec is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_core.settings import SpecLimits
from dmls_core.spec.definitions import ModelDefinition
from dmls_core.spec.findings import Findings
from dmls_core.spec.positions import Path
from dmls_core.spec.words import closest

Catalogue = Mapping[str, ModelDefinition]


def read_models(
    top: dict[str, Any], catalogue: Catalogue, findings: Findings, limits: SpecLimits
) -> tuple[ModelDefinition, ...]:
    """Return the models that the spec names.

    In place of an unknown name stands the one most like it, so that the rest of the spec can be
    checked against what was most likely meant.
    """
    if "model" not in top:
        findings.add(
            ("model",),
            "is missing",
            expected=", ".join(catalogue),
            hint='name the model in the first line: model = "random-forest-classifier"',
        )
        return ()
    value = top["model"]
    names = value if isinstance(value, list) else [value]
    if not names:
        findings.add(("model",), "is empty", found=value, expected="at least one model")
    if len(names) > limits.models:
        findings.add(("model",), "names too many models", found=value, expected=f"at most {limits.models}")
        return ()
    models: dict[str, ModelDefinition] = {}
    for index, name in enumerate(names):
        path: Path = ("model", index) if isinstance(value, list) else ("model",)
        model = _read_model(name, path, catalogue, findings)
        if model is None:
            continue
        if model.name in models:
            findings.add(path, "is there twice", found=name, hint="name each model once")
        elif models and model.task != (task := next(iter(models.values())).task):
            message = f"is for {model.task}, but the first model is for {task}"
            hint = "models of one spec are compared by one metric"
            findings.add(path, message, found=name, hint=hint)
        models[model.name] = model
    return tuple(models.values())


def _read_model(name: object, path: Path, catalogue: Catalogue, findings: Findings) -> ModelDefinition | None:
    if isinstance(name, str) and name in catalogue:
        return catalogue[name]
    if not isinstance(name, str):
        findings.add(path, "must be the name of a model", found=name, expected=", ".join(catalogue))
        return None
    message = "is not a model that there is"
    findings.add(path, message, found=name, expected=", ".join(catalogue), word=name, names=catalogue)
    return catalogue.get(closest(name, catalogue))
