"""The JSON schema of ``spec.toml``, for editors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dmls_core.settings import SpecLimits
from dmls_core.spec.definitions import AUTO, HyperparameterDefinition, ModelDefinition
from dmls_core.spec.tables import RESERVED, TABLES, TAGS

Schema = dict[str, Any]


def json_schema(catalogue: Mapping[str, ModelDefinition], limits: SpecLimits | None = None) -> Schema:
    """Return the schema (draft 2020-12) of a spec with the models of ``catalogue``.

    It accepts every valid spec, but cannot express rules between keys, such as ``min`` below ``max``.
    """
    limits = limits or SpecLimits.from_environment()
    definitions: Schema = {}
    tables = {name: _table(table.model_json_schema(), definitions) for name, table in TABLES.items()}
    names = sorted({name for model in catalogue.values() for name in model.hyperparameters})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "DMLS spec",
        "description": "The model to train, the columns of the data, and the search.",
        "type": "object",
        "required": ["model", "columns"],
        "properties": {
            "model": _model(catalogue),
            "n_trials": {
                "type": "integer",
                "minimum": 1,
                "maximum": limits.trials,
                "description": "Number of trials.",
            },
            **tables,
            TAGS: {
                "type": "object",
                "description": "Your own names and values, recorded with every run.",
                "additionalProperties": {"type": "string"},
                "maxProperties": limits.tags,
            },
            **{name: _of_any(name, catalogue.values()) for name in names},
            **{name: {"$ref": f"#/$defs/{name}"} for name in catalogue},
        },
        "additionalProperties": False,
        "allOf": [_of_single(model) for model in catalogue.values()],
        "$defs": {
            **definitions,
            **{name: _model_table(model, limits) for name, model in catalogue.items()},
        },
    }


def _model(catalogue: Mapping[str, ModelDefinition]) -> Schema:
    one = {
        "description": "The model to train.",
        "oneOf": [{"const": model.name, "description": model.description} for model in catalogue.values()],
    }
    several = {
        "type": "array",
        "description": "Models to train side by side; the best one wins.",
        "items": one,
        "minItems": 1,
        "uniqueItems": True,
    }
    auto = {
        "enum": list(AUTO),
        "description": "DMLS's choice of models, trained side by side; the best one wins.",
    }
    return {"anyOf": [one, several, auto]}


def _model_table(model: ModelDefinition, limits: SpecLimits) -> Schema:
    return {
        "type": "object",
        "description": f"Hyperparameters of {model.name} only. {model.description}",
        "properties": {
            name: _hyperparameter(definition, limits) for name, definition in model.hyperparameters.items()
        },
        "additionalProperties": False,
    }


def _reference(model: ModelDefinition, name: str) -> Schema:
    return {"$ref": f"#/$defs/{model.name}/properties/{name}"}


def _of_single(model: ModelDefinition) -> Schema:
    names = list(model.hyperparameters)
    return {
        "if": {"properties": {"model": {"const": model.name}}, "required": ["model"]},
        "then": {
            "propertyNames": {"enum": [*RESERVED, *names, model.name]},
            "properties": {name: _reference(model, name) for name in names},
        },
    }


def _of_any(name: str, models: Iterable[ModelDefinition]) -> Schema:
    variants: dict[str, ModelDefinition] = {}
    for model in models:
        if name in model.hyperparameters:
            variants.setdefault(repr(model.hyperparameters[name]), model)
    references = [_reference(model, name) for model in variants.values()]
    return references[0] if len(references) == 1 else {"anyOf": references}


def _hyperparameter(definition: HyperparameterDefinition, limits: SpecLimits) -> Schema:
    number = _number(definition)
    word: Schema = {"enum": list(definition.choices)}
    if definition.kind == "choice":
        value = word
    else:
        value = {"anyOf": [number, word]} if definition.choices else number
    properties: Schema = {
        "values": {
            "type": "array",
            "description": "The values to try.",
            "items": value,
            "minItems": 1,
            "maxItems": limits.values,
        },
        "value": {"description": "A fixed value.", **value},
    }
    forms = [{"required": ["values"]}, {"required": ["value"]}]
    if definition.kind in ("int", "float", "count"):
        properties |= {
            "min": {"description": "The smallest value to try.", **number},
            "max": {"description": "The largest value to try.", **number},
            "step": {"description": "Step between values.", "type": "number", "exclusiveMinimum": 0},
            "log": {"description": "Sample on a log scale.", "type": "boolean"},
        }
        forms.append({"required": ["min", "max"]})
    return {
        "type": "object",
        "description": f"{definition.description} Default: {definition.default}.",
        "properties": properties,
        "additionalProperties": False,
        "oneOf": forms,
    }


def _number(definition: HyperparameterDefinition) -> Schema:
    if definition.kind == "bool":
        return {"type": "boolean"}
    if definition.kind == "count":
        return {"type": "number", "exclusiveMinimum": 0, "maximum": definition.high}
    number: Schema = {"type": "integer" if definition.kind == "int" else "number"}
    if definition.low is not None:
        number["exclusiveMinimum" if definition.low_open else "minimum"] = definition.low
    if definition.high is not None:
        number["maximum"] = definition.high
    return number


def _table(schema: Schema, definitions: Schema) -> Schema:
    """Move the definitions of a table to the top, and remove parts that TOML lacks."""
    for name, definition in schema.pop("$defs", {}).items():
        definitions[name] = _cleaned(definition)
    cleaned: Schema = _cleaned(schema)
    return cleaned


def _cleaned(value: Any) -> Any:  # noqa: ANN401 - any part of a JSON schema
    """Remove titles and nulls: TOML has no null."""
    if isinstance(value, list):
        return [_cleaned(part) for part in value]
    if not isinstance(value, dict):
        return value
    schema = {
        key: _cleaned(part)
        for key, part in value.items()
        if not (key == "title" and isinstance(part, str)) and not (key == "default" and part is None)
    }
    if "anyOf" not in schema:
        return schema
    options = [option for option in schema.pop("anyOf") if option != {"type": "null"}]
    return {**options[0], **schema} if len(options) == 1 else {"anyOf": options, **schema}
