"""From the spec's hyperparameters to an engine's arguments, and back to what took effect."""

from __future__ import annotations

from collections.abc import Mapping

from dmls_core.spec.definitions import NONE, ModelDefinition, Scalar


def effective(model: ModelDefinition, engine: str, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return every hyperparameter that ``engine`` knows, by the spec's names, defaults written in.

    Values that the engine takes for the same become one.
    """
    found: dict[str, Scalar] = {}
    for name, definition in model.hyperparameters.items():
        if engine not in definition.unsupported:
            value = params.get(name, definition.default)
            found[name] = definition.aliases.get(engine, {}).get(str(value), value)
    return found


def engine_arguments(
    model: ModelDefinition, params: Mapping[str, Scalar], engine: str
) -> dict[str, Scalar | None]:
    """Return hyperparameters by the engine's own names and in its own words.

    Args:
        model: the model to fit.
        params: as ``effective`` returned them.
        engine: the engine that fits it.
    """
    arguments: dict[str, Scalar | None] = {}
    for name, value in params.items():
        definition = model.hyperparameters[name]
        translated: Scalar | None = value
        if isinstance(value, str):
            words = definition.engine_values.get(engine, {})
            translated = words.get(value, None if value == NONE else value)
        arguments[definition.engine_names.get(engine, name)] = translated
    return arguments


def recorded(
    model: ModelDefinition,
    engine: str,
    params: Mapping[str, Scalar],
    library: Mapping[str, Scalar | None],
) -> dict[str, Scalar | None]:
    """Join what the spec names with what else the library says was in effect.

    Args:
        model: the fitted model.
        engine: the engine that fitted it.
        params: effective hyperparameters by the spec's names.
        library: the library's own account, by its own names.
    """
    known = set(engine_arguments(model, params, engine)) | set(params)
    merged: dict[str, Scalar | None] = {k: None if v == NONE else v for k, v in params.items()}
    return merged | {k: v for k, v in library.items() if k not in known}
