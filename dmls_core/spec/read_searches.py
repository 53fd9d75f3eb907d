"""Every table that is not reserved: what is searched for each model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dmls_core.settings import SpecLimits
from dmls_core.spec.definitions import ModelDefinition
from dmls_core.spec.findings import Findings
from dmls_core.spec.hyperparameters import Choice, Hyperparameter
from dmls_core.spec.model import ModelSearch
from dmls_core.spec.positions import Path
from dmls_core.spec.read_hyperparameters import read_hyperparameter
from dmls_core.spec.reserved import KEYS, RESERVED, TABLES, TAGS

_Read = dict[str, tuple[Path, Hyperparameter | None]]
"""Hyperparameter -> where it stands, and its space if that is sound."""


def read_searches(
    top: dict[str, Any],
    models: tuple[ModelDefinition, ...],
    catalogue: Mapping[str, ModelDefinition],
    findings: Findings,
    limits: SpecLimits,
) -> tuple[ModelSearch, ...]:
    """Return what is searched for each model; a table of the model's own wins over a common one."""
    reader = _Reader(models, catalogue, findings, limits)
    common = {name: table for name, table in top.items() if name not in RESERVED and name not in catalogue}
    for name, table in common.items():
        reader.note_unknown(name, table)
    searches: list[ModelSearch] = []
    for model in models:
        read: _Read = {}
        for name, table in common.items():
            if name in model.hyperparameters:
                read[name] = reader.one(model, name, (name,), table)
        if model.name in top:
            read |= reader.own(model, top[model.name])
        searches.append(reader.complete(model, read))
    for name in catalogue:
        if name in top and all(model.name != name for model in models):
            findings.add((name,), "is not a model of this spec", hint=f'add "{name}" to `model`')
    return tuple(searches)


@dataclass(frozen=True, slots=True)
class _Reader:
    models: tuple[ModelDefinition, ...]
    catalogue: Mapping[str, ModelDefinition]
    findings: Findings
    limits: SpecLimits

    def one(
        self, model: ModelDefinition, name: str, path: Path, table: object
    ) -> tuple[Path, Hyperparameter | None]:
        """Read the table of one hyperparameter."""
        definition = model.hyperparameters[name]
        return path, read_hyperparameter(definition, table, path, self.findings, self.limits)

    def own(self, model: ModelDefinition, tables: object) -> _Read:
        """Read the tables below ``[random-forest-classifier]``."""
        if not isinstance(tables, dict):
            hint = f"write [{model.name}.n_estimators], for instance"
            self.findings.add((model.name,), "must be a table", found=tables, expected="a table", hint=hint)
            return {}
        read: _Read = {}
        names = model.hyperparameters
        for name, table in tables.items():
            path = (model.name, name)
            if name in names:
                read[name] = self.one(model, name, path, table)
            else:
                message = f"is not a hyperparameter of {model.name}"
                self.findings.add(path, message, expected=", ".join(names), word=name, names=names)
        return read

    def note_unknown(self, name: str, value: object) -> None:
        """Note a table or key at the top that no model of the spec knows."""
        if any(name in model.hyperparameters for model in self.models):
            return
        others = [model.name for model in self.catalogue.values() if name in model.hyperparameters]
        if others and not self.models:
            return  # Which model is meant is unknown, and was noted.
        names = _names(self.models or self.catalogue.values())
        hint = f"it is one of {', '.join(others)}" if others else ""
        if isinstance(value, dict):
            who = " or ".join(model.name for model in self.models) or "any model"
            message = f"is not a hyperparameter of {who}, nor another table of a spec"
            if inner := next((key for key in value if key in names), None):
                hint = f"write [{inner}]: hyperparameters have no table around them"
            expected, meant = names, (*names, *TABLES, TAGS)
        else:
            message = "is not a key of a spec"
            expected, meant = list(KEYS), (*RESERVED, *names)
        self.findings.add(
            (name,),
            message,
            found=value,
            expected=", ".join(expected),
            hint=hint,
            word="" if hint else name,
            names=meant,
        )

    def complete(self, model: ModelDefinition, read: _Read) -> ModelSearch:
        """Write in what the spec does not say: the search of a spec that lists nothing, and defaults."""
        for requirement in model.requirements:
            self._check(requirement.name, requirement.needs, requirement.value, model, read)
        spaces = {name: space for name, (_, space) in read.items() if space is not None}
        if not read:
            for name, table in model.search.items():
                _, space = self.one(model, name, (name,), table)
                if space is not None:
                    spaces[name] = space
        for name in model.hyperparameters:
            spaces.setdefault(name, _default(model, name))
        # Sorted, so that the order of the tables in the file means nothing.
        return ModelSearch(name=model.name, hyperparameters=dict(sorted(spaces.items())))

    def _check(self, name: str, needs: str, value: object, model: ModelDefinition, read: _Read) -> None:
        path, space = read.get(name, ((), None))
        if space is None or space == _default(model, name):
            return
        _, other = read.get(needs, ((), _default(model, needs)))
        if other is not None and other != Choice(values=(value,)):
            word = str(value).lower()
            hint = f"write `[{needs}]` and below it `value = {word}`"
            self.findings.add(path, f"has an effect only where {needs} is {word}", hint=hint)


def _default(model: ModelDefinition, name: str) -> Choice:
    return Choice(values=(model.hyperparameters[name].default,))


def _names(models: Iterable[ModelDefinition]) -> list[str]:
    return sorted({name for model in models for name in model.hyperparameters})
