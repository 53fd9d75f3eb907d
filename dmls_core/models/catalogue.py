"""The catalogue: every model that a spec can name, assembled from the installed engines.

Reading it imports the engines' modules, but none of the libraries that they wrap.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, get_args

from dmls_core import extensions
from dmls_core.errors import EngineUnavailableError, PlatformError
from dmls_core.models.engines.base import Device, Engine
from dmls_core.models.metrics import DEFAULT_METRICS, metrics_of
from dmls_core.spec.definitions import AUTO, HyperparameterDefinition, ModelDefinition

_GROUP: extensions.Group = "dmls.engines"

_ATTRIBUTES = ("name", "device", "models", "packages", "libraries")
"""Attributes that every engine class defines."""


def engine_class(device: str, model: str) -> type[Engine]:
    """Return the engine that fits ``model`` on ``device``, whether or not its packages are installed.

    Raises:
        EngineUnavailableError: no such engine is registered.
    """
    try:
        return _engines()[device, model]
    except KeyError:
        raise EngineUnavailableError(f"no installed {device} engine fits {model}") from None


def load_engine(device: str, model: str) -> Engine:
    """Return an instance of the engine that fits ``model`` on ``device``.

    Raises:
        EngineUnavailableError: no such engine is registered, or its packages are not installed.
    """
    engine = engine_class(device, model)
    if missing := engine.missing_packages():
        raise EngineUnavailableError(
            f"the {device} engine for {model} needs packages that are not installed here: "
            + ", ".join(missing)
        )
    return engine()


@cache
def _engines() -> dict[tuple[str, str], type[Engine]]:
    """Return (device, model) -> its engine.

    Raise ``PlatformError`` if an object is not an engine, or two engines fit a model on the same device.
    """
    engines: dict[tuple[str, str], type[Engine]] = {}
    for name in extensions.names(_GROUP):
        engine = _checked(name, extensions.load(_GROUP, name))
        for model in engine.models:
            other = engines.setdefault((engine.device, model.name), engine)
            if other is not engine:
                raise PlatformError(
                    f"two engines fit {model.name} on the {engine.device}: {_origin(other.name)} and "
                    f"{_origin(name)}; uninstall one of the packages"
                )
    return engines


def _checked(name: str, engine: object) -> type[Engine]:
    """Return a registered object as an engine class; raise ``PlatformError`` if it is none."""
    problem = ""
    if not (isinstance(engine, type) and issubclass(engine, Engine)):
        problem = "is not a subclass of dmls_core.models.engines.Engine"
    elif inspect.isabstract(engine):
        problem = f"does not define {', '.join(sorted(engine.__abstractmethods__))}"
    elif missing := [one for one in _ATTRIBUTES if not hasattr(engine, one)]:
        problem = f"lacks the attributes {', '.join(missing)}"
    elif engine.name != name:
        problem = f"has the name {engine.name!r}, not that of its entry point"
    elif engine.device not in get_args(Device):
        problem = f"has the device {engine.device!r}, not one of {', '.join(get_args(Device))}"
    else:
        return engine
    raise PlatformError(f"the engine {_origin(name)} {problem}")


def _origin(name: str) -> str:
    """Return an engine's name with the package that registers it."""
    packages = [one.package for one in extensions.installed() if (one.group, one.name) == (_GROUP, name)]
    return f"{name!r} ({', '.join(packages) or 'unknown package'})"


def _models() -> dict[str, ModelDefinition]:
    """Return the definition of every model, by name.

    Raise ``PlatformError`` if engines define a model differently, or an engine cannot be loaded.
    """
    models: dict[str, ModelDefinition] = {}
    for device, name in sorted(_engines()):
        engine = _engines()[device, name]
        definition = next(model for model in engine.models if model.name == name)
        if name not in models:
            models[name] = replace(
                definition,
                engines=(device,),
                metrics=metrics_of(definition.task),
                default_metric=DEFAULT_METRICS[definition.task],
            )
            continue
        first = models[name]
        same = replace(
            definition, engines=first.engines, metrics=first.metrics, default_metric=first.default_metric
        )
        if same != first:
            other = _engines()[first.engines[0], name]
            raise PlatformError(
                f"{_origin(other.name)} and {_origin(engine.name)} define the model {name} differently"
            )
        models[name] = replace(first, engines=(*first.engines, device))
    return dict(sorted(models.items(), key=lambda item: (not item[0].startswith("random-forest"), item[0])))


CATALOGUE: Mapping[str, ModelDefinition] = extensions.LazyMapping(_models)
"""Model name -> its definition: random forests, recommended as first models, then the others by name."""


_SPREAD = 4
"""A suggested range goes from a quarter of the default value to four times that value."""

_LOG_RATIO = 30
"""Ranges whose ends have at least this ratio use a log scale."""


def catalogue_form() -> dict[str, Any]:
    """Return every model with its metrics and hyperparameters, each with a suggested range.

    ``auto`` has the names of ``AUTO``, and the models that each stands for.
    """
    automatic = [
        {"name": name, "task": CATALOGUE[models[0]].task, "models": list(models)}
        for name, models in AUTO.items()
    ]
    return {"auto": automatic, "models": [_model(model) for model in CATALOGUE.values()]}


def suggest(model: ModelDefinition, name: str) -> dict[str, Any]:
    """Return the table that a form suggests for searching a hyperparameter.

    It is that of its definition or of the model's default search space, if there is one; otherwise all
    choices, both booleans, or legal numbers around the default.
    """
    definition = model.hyperparameters[name]
    if table := definition.suggested or model.search.get(name):
        return dict(table)
    if definition.kind == "choice":
        return {"values": list(definition.choices)}
    if definition.kind == "bool":
        return {"values": [False, True]}
    if definition.kind == "count":
        return {"values": [definition.default, *_other_counts(definition)]}
    return _range(definition)


def _range(definition: HyperparameterDefinition) -> dict[str, Any]:
    integer = definition.kind == "int"
    lowest = definition.low if definition.low is not None else 0
    highest = definition.high if definition.high is not None else float("inf")
    default = definition.default
    if isinstance(default, str) or not default:  # "none" or 0
        low, high = (max(4, lowest), 64) if integer else (0.001, 1.0)
    else:
        low, high = float(default) / _SPREAD, float(default) * _SPREAD
    low, high = max(low, lowest), min(high, highest)
    if integer:
        low, high = int(low), int(high)
    table: dict[str, Any] = {"min": low, "max": high}
    return {**table, "log": True} if low > 0 and high / low >= _LOG_RATIO else table


def _other_counts(definition: HyperparameterDefinition) -> list[float]:
    return [value for value in (0.25, 0.5) if value != definition.default and value <= definition.share_high]


def _model(model: ModelDefinition) -> dict[str, Any]:
    return {
        "name": model.name,
        "task": model.task,
        "description": model.description,
        "engines": model.engines,
        "default_metric": model.default_metric,
        "metrics": [
            {"name": metric.name, "direction": metric.direction, "description": metric.description}
            for metric in model.metrics.values()
        ],
        "search": {name: dict(table) for name, table in model.search.items()},
        "hyperparameters": [
            _hyperparameter(model, definition) for definition in model.hyperparameters.values()
        ],
    }


def _hyperparameter(model: ModelDefinition, definition: HyperparameterDefinition) -> Mapping[str, Any]:
    return {
        "name": definition.name,
        "kind": definition.kind,
        "default": definition.default,
        "description": definition.description,
        "low": definition.low,
        "high": definition.high,
        "low_open": definition.low_open,
        "share_high": definition.share_high if definition.kind == "count" else None,
        "choices": definition.choices,
        "suggested": suggest(model, definition.name),
    }
