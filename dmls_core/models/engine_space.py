"""What an engine makes of a search space: which values it takes for the same, and what it cannot do."""

from __future__ import annotations

from collections.abc import Mapping

from dmls_core.spec import Choice, Findings, Hyperparameter, ModelDefinition, Range, SpecLimits
from dmls_core.spec.definitions import HyperparameterDefinition
from dmls_core.spec.positions import Path


def for_engine(
    definition: ModelDefinition, hyperparameters: Mapping[str, Hyperparameter], engine: str
) -> dict[str, Hyperparameter]:
    """Return the space that ``engine`` really searches.

    Values that the engine takes for the same become one (``log_loss`` is ``entropy`` on cuML); a
    hyperparameter that it does not have drops out where it is fixed at its default.

    Raises:
        SpecError: the engine cannot fit the model, or cannot do what a hyperparameter asks.
    """
    findings = Findings("", None, SpecLimits())
    note_unsupported(definition, hyperparameters, engine, findings)
    findings.raise_any()
    space: dict[str, Hyperparameter] = {}
    for name, values in hyperparameters.items():
        hyperparameter = definition.hyperparameters[name]
        if engine in hyperparameter.unsupported:
            continue
        space[name] = _collapse(hyperparameter, values, engine)
    return space


def note_unsupported(
    definition: ModelDefinition,
    hyperparameters: Mapping[str, Hyperparameter],
    engine: str,
    findings: Findings,
) -> None:
    """Note everything in a search space that ``engine`` cannot do."""
    if engine not in definition.engines:
        findings.add(
            ("resources", "engine"),
            f"{definition.name} has no {engine} engine",
            found=engine,
            expected=" or ".join((*definition.engines, "auto")),
        )
        return
    for name, space in hyperparameters.items():
        hyperparameter = definition.hyperparameters[name]
        path = findings.standing((definition.name, name), (name,))
        default = Choice(values=(hyperparameter.default,))
        if reason := hyperparameter.unsupported.get(engine):
            if space != default:
                findings.add(
                    path,
                    f"cannot be varied on the {engine} engine: {reason}",
                    hint='leave it out, or write engine = "cpu" in [resources]',
                )
            continue
        _note_values(hyperparameter, space, engine, path, findings)


def _note_values(
    hyperparameter: HyperparameterDefinition,
    space: Hyperparameter,
    engine: str,
    path: Path,
    findings: Findings,
) -> None:
    if engine in hyperparameter.shares_only and _has_integers(space):
        findings.add(path, f"must be a share on the {engine} engine", expected="a float above 0 up to 1.0")
    if isinstance(space, Choice):
        refused = hyperparameter.unsupported_values.get(engine, frozenset())
        known = [choice for choice in hyperparameter.choices if choice not in refused]
        for index, value in enumerate(space.values):
            if value in refused:
                place = findings.standing((*path, "values", index), (*path, "value"), path)
                findings.add(
                    place,
                    f"is not known to the {engine} engine",
                    found=value,
                    expected=", ".join(f'"{choice}"' for choice in known),
                )


def _has_integers(space: Hyperparameter) -> bool:
    if isinstance(space, Range):
        return space.integer
    return any(type(value) is int for value in space.values)


def _collapse(hyperparameter: HyperparameterDefinition, space: Hyperparameter, engine: str) -> Hyperparameter:
    aliases = hyperparameter.aliases.get(engine)
    if not aliases or isinstance(space, Range):
        return space
    return Choice(values=tuple(dict.fromkeys(aliases.get(str(value), value) for value in space.values)))
