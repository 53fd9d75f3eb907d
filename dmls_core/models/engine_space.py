"""The search space that an engine supports."""

from __future__ import annotations

from collections.abc import Mapping

from dmls_core.models.catalogue import engine_class
from dmls_core.models.engines.base import SAME, Argument
from dmls_core.settings import SpecLimits
from dmls_core.spec import Choice, Hyperparameter, IssueCollector, ModelDefinition, Range
from dmls_core.spec.definitions import HyperparameterDefinition
from dmls_core.spec.positions import Path


def for_engine(
    model: ModelDefinition, hyperparameters: Mapping[str, Hyperparameter], device: str
) -> dict[str, Hyperparameter]:
    """Return the space that the model's engine on ``device`` searches.

    Values with the same effect become one (``log_loss`` is ``entropy`` in cuML). Hyperparameters that the
    engine lacks are left out if they are fixed at their defaults.

    Raises:
        SpecError: the device has no engine for the model, or the engine does not support a hyperparameter.
    """
    issues = IssueCollector("", None, SpecLimits())
    note_unsupported(model, hyperparameters, device, issues)
    issues.raise_any()
    arguments = engine_class(device, model.name).arguments
    return {
        name: _without_aliases(arguments.get(name, SAME), space)
        for name, space in hyperparameters.items()
        if not arguments.get(name, SAME).unsupported
    }


def note_unsupported(
    model: ModelDefinition,
    hyperparameters: Mapping[str, Hyperparameter],
    device: str,
    issues: IssueCollector,
) -> None:
    """Note everything in a search space that the engine on ``device`` does not support."""
    if device not in model.engines:
        issues.add(
            ("resources", "engine"),
            f"{model.name} has no {device} engine",
            found=device,
            expected=" or ".join((*model.engines, "auto")),
        )
        return
    arguments = engine_class(device, model.name).arguments
    for name, space in hyperparameters.items():
        argument = arguments.get(name, SAME)
        path = issues.standing((model.name, name), (name,))
        if not argument.unsupported:
            _note_values(model.hyperparameters[name], argument, space, device, path, issues)
        elif space != Choice(values=(model.hyperparameters[name].default,)):
            issues.add(
                path,
                f"cannot be varied on the {device} engine: {argument.unsupported}",
                hint='leave it out, or write engine = "cpu" in [resources]',
            )


def _note_values(
    definition: HyperparameterDefinition,
    argument: Argument,
    space: Hyperparameter,
    device: str,
    path: Path,
    issues: IssueCollector,
) -> None:
    if argument.shares_only and _has_integers(space):
        issues.add(path, f"must be a share on the {device} engine", expected="a float above 0 up to 1.0")
    if isinstance(space, Range):
        return
    known = [choice for choice in definition.choices if choice not in argument.unsupported_values]
    for index, value in enumerate(space.values):
        if value in argument.unsupported_values:
            issues.add(
                issues.standing((*path, "values", index), (*path, "value"), path),
                f"is not known to the {device} engine",
                found=value,
                expected=", ".join(f'"{choice}"' for choice in known),
            )


def _has_integers(space: Hyperparameter) -> bool:
    if isinstance(space, Range):
        return space.integer
    return any(type(value) is int for value in space.values)


def _without_aliases(argument: Argument, space: Hyperparameter) -> Hyperparameter:
    if not argument.aliases or isinstance(space, Range):
        return space
    return Choice(
        values=tuple(dict.fromkeys(argument.aliases.get(str(value), value) for value in space.values))
    )
