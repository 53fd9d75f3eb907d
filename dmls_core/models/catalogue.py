"""The catalogue: every model that a spec can name, assembled from the installed engines.

Reading it imports the engines' modules, but none of the libraries that they wrap.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import get_args

from dmls_core import extensions
from dmls_core.errors import EngineUnavailableError, PlatformError
from dmls_core.models.engines.base import Device, Engine
from dmls_core.models.metrics import DEFAULT_METRICS, metrics_of
from dmls_core.spec.definitions import ModelDefinition

GROUP: extensions.Group = "dmls.engines"

ATTRIBUTES = ("name", "device", "models", "packages", "libraries")
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
    found = engine_class(device, model)
    if missing := found.missing_packages():
        raise EngineUnavailableError(
            f"the {device} engine for {model} needs packages that are not installed here: "
            + ", ".join(missing)
        )
    return found()


@cache
def _engines() -> dict[tuple[str, str], type[Engine]]:
    """Return (device, model) -> its engine.

    Raise ``PlatformError`` if an object is not an engine, or two engines fit a model on the same device.
    """
    found: dict[tuple[str, str], type[Engine]] = {}
    for name in extensions.names(GROUP):
        engine = _checked(name, extensions.load(GROUP, name))
        for model in engine.models:
            other = found.setdefault((engine.device, model.name), engine)
            if other is not engine:
                raise PlatformError(
                    f"two engines fit {model.name} on the {engine.device}: {_origin(other.name)} and "
                    f"{_origin(name)}; uninstall one of the packages"
                )
    return found


def _checked(name: str, engine: object) -> type[Engine]:
    """Return a registered object as an engine class; raise ``PlatformError`` if it is none."""
    problem = ""
    if not (isinstance(engine, type) and issubclass(engine, Engine)):
        problem = "is not a subclass of dmls_core.models.engines.Engine"
    elif inspect.isabstract(engine):
        problem = f"does not define {', '.join(sorted(engine.__abstractmethods__))}"
    elif missing := [one for one in ATTRIBUTES if not hasattr(engine, one)]:
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
    packages = [one.package for one in extensions.installed() if (one.group, one.name) == (GROUP, name)]
    return f"{name!r} ({', '.join(packages) or 'unknown package'})"


def _models() -> dict[str, ModelDefinition]:
    """Return the definition of every model, by name.

    Raise ``PlatformError`` if engines define a model differently, or an engine cannot be loaded.
    """
    found: dict[str, ModelDefinition] = {}
    for device, name in sorted(_engines()):
        engine = _engines()[device, name]
        own = next(model for model in engine.models if model.name == name)
        if name not in found:
            found[name] = replace(
                own, engines=(device,), metrics=metrics_of(own.task), default_metric=DEFAULT_METRICS[own.task]
            )
            continue
        known = found[name]
        same = replace(own, engines=known.engines, metrics=known.metrics, default_metric=known.default_metric)
        if same != known:
            other = _engines()[known.engines[0], name]
            raise PlatformError(
                f"{_origin(other.name)} and {_origin(engine.name)} define the model {name} differently"
            )
        found[name] = replace(known, engines=(*known.engines, device))
    return dict(sorted(found.items(), key=lambda item: (not item[0].startswith("random-forest"), item[0])))


CATALOGUE: Mapping[str, ModelDefinition] = extensions.LazyMapping(_models)
"""Model name -> its definition: random forests, recommended as first models, then the others by name."""
