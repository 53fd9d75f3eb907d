"""Parse ``model`` and the tables of hyperparameters into the search space of each model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dmls_core.settings import SpecLimits
from dmls_core.spec.definitions import AUTO, Choice, Hyperparameter, ModelDefinition, Task
from dmls_core.spec.hyperparameter_parser import read_hyperparameter
from dmls_core.spec.issues import IssueCollector, closest
from dmls_core.spec.positions import Path
from dmls_core.spec.spec import ModelSearch
from dmls_core.spec.tables import KEYS, RESERVED, TABLES, TAGS

Catalogue = Mapping[str, ModelDefinition]

_ALONE = ("catboost",)
"""Families that do not run on nodes."""


def read_models(
    top: dict[str, Any], catalogue: Catalogue, issues: IssueCollector, limits: SpecLimits
) -> tuple[ModelDefinition, ...]:
    """Return the spec's models; an unknown name becomes the most similar one, so that the rest is checked.

    A name of ``AUTO`` becomes the models that compete, the first ones if there are fewer trials.
    """
    if "model" not in top:
        issues.add(
            ("model",),
            "is missing",
            expected=", ".join((*AUTO, *catalogue)),
            hint='name the model in the first line: model = "auto-classifier"',
        )
        return ()
    value = top["model"]
    names = value if isinstance(value, list) else _auto_models(value, top, catalogue) or [value]
    if not names:
        issues.add(("model",), "is empty", found=value, expected="at least one model")
    if len(names) > limits.models:
        issues.add(("model",), "names too many models", found=value, expected=f"at most {limits.models}")
        return ()
    models: dict[str, ModelDefinition] = {}
    for index, name in enumerate(names):
        path: Path = ("model", index) if isinstance(value, list) else ("model",)
        model = _read_model(name, path, catalogue, issues)
        if model is None:
            continue
        if model.name in models:
            issues.add(path, "appears twice", found=name, hint="name each model once")
        elif models and model.task != (task := next(iter(models.values())).task):
            message = f"is for {model.task}, but the first model is for {task}"
            hint = "models of one spec are compared by one metric"
            issues.add(path, message, found=name, hint=hint)
        models[model.name] = model
    return tuple(models.values())


def _auto_models(name: object, top: Mapping[str, Any], catalogue: Catalogue) -> list[str]:
    """Return the models that a name of ``AUTO`` stands for; none for another name."""
    resources, n_trials = top.get("resources"), top.get("n_trials")
    nodes = isinstance(resources, dict) and resources.get("nodes", 1) != 1
    names = AUTO.get(name, ()) if isinstance(name, str) else ()
    models = [one for one in names if one in catalogue and not (nodes and catalogue[one].family in _ALONE)]
    return models[: max(1, n_trials)] if isinstance(n_trials, int) else models


_TASKS: dict[str, Task] = {
    "logistic": "classification",
    "classif": "classification",
    "regress": "regression",
}
"""What the name of a model says of its task; a logistic regression is a classifier."""

_ROLES: dict[Task, str] = {"classification": "classifier", "regression": "regressor"}


def _read_model(
    name: object, path: Path, catalogue: Catalogue, issues: IssueCollector
) -> ModelDefinition | None:
    if isinstance(name, str) and name in catalogue:
        return catalogue[name]
    if not isinstance(name, str):
        issues.add(path, "must be the name of a model", found=name, expected=", ".join(catalogue))
        return None
    message, names = "is not a known model", (*AUTO, *catalogue)
    hint = ""
    if name == "auto":
        hint = "write auto-classifier to predict classes, auto-regressor to predict numbers"
    # A model for the other task is no correction, however similar its name.
    candidates = names
    if task := next((task for sign, task in _TASKS.items() if sign in name.lower()), None):
        auto = f"auto-{_ROLES[task]}"
        candidates = (auto, *(one for one, model in catalogue.items() if model.task == task))
        hint = f"{auto} chooses one of the models that there are"
    word = "" if name == "auto" else name
    issues.add(path, message, found=name, expected=", ".join(names), hint=hint, word=word, names=candidates)
    return catalogue.get(closest(name, candidates))


_Read = dict[str, tuple[Path, Hyperparameter | None]]
"""Hyperparameter -> its path, and its space if that is valid."""


def read_searches(
    top: dict[str, Any],
    models: tuple[ModelDefinition, ...],
    catalogue: Mapping[str, ModelDefinition],
    issues: IssueCollector,
    limits: SpecLimits,
) -> tuple[ModelSearch, ...]:
    """Return the search space of each model; a table below the model's name overrides a common one."""
    reader = _SearchReader(models, catalogue, issues, limits)
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
            read |= reader.read_model(model, top[model.name])
        searches.append(reader.complete(model, read))
    for name in catalogue:
        if name in top and all(model.name != name for model in models):
            issues.add((name,), "is not a model of this spec", hint=f'add "{name}" to `model`')
    return tuple(searches)


@dataclass(frozen=True, slots=True)
class _SearchReader:
    models: tuple[ModelDefinition, ...]
    catalogue: Mapping[str, ModelDefinition]
    issues: IssueCollector
    limits: SpecLimits

    def one(
        self, model: ModelDefinition, name: str, path: Path, table: object
    ) -> tuple[Path, Hyperparameter | None]:
        definition = model.hyperparameters[name]
        return path, read_hyperparameter(definition, table, path, self.issues, self.limits)

    def read_model(self, model: ModelDefinition, tables: object) -> _Read:
        """Read the tables below a model's name, such as ``[random-forest-classifier]``."""
        if not isinstance(tables, dict):
            hint = f"write [{model.name}.n_estimators], for instance"
            self.issues.add((model.name,), "must be a table", found=tables, expected="a table", hint=hint)
            return {}
        read: _Read = {}
        names = model.hyperparameters
        for name, table in tables.items():
            path = (model.name, name)
            if name in names:
                read[name] = self.one(model, name, path, table)
            else:
                message = f"is not a hyperparameter of {model.name}"
                self.issues.add(path, message, expected=", ".join(names), word=name, names=names)
        return read

    def note_unknown(self, name: str, value: object) -> None:
        """Report a top-level table or key that no model of the spec has."""
        if any(name in model.hyperparameters for model in self.models):
            return
        others = [model.name for model in self.catalogue.values() if name in model.hyperparameters]
        if others and not self.models:
            return  # The model is unknown, which is reported already.
        names = _names(self.models or self.catalogue.values())
        hint = f"it belongs to {', '.join(others)}" if others else ""
        if isinstance(value, dict):
            who = " or ".join(model.name for model in self.models) or "any model"
            message = f"is neither a hyperparameter of {who} nor a table of a spec"
            if inner := next((key for key in value if key in names), None):
                hint = f"write [{inner}]: hyperparameters are top-level tables"
            expected, meant = names, (*names, *TABLES, TAGS)
        else:
            message = "is not a key of a spec"
            expected, meant = list(KEYS), (*RESERVED, *names)
        self.issues.add(
            (name,),
            message,
            found=value,
            expected=", ".join(expected),
            hint=hint,
            word="" if hint else name,
            names=meant,
        )

    def complete(self, model: ModelDefinition, read: _Read) -> ModelSearch:
        """Add default values, and the default search space if the spec has no hyperparameters."""
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
        # Sorted, so that the order of tables in the file does not matter.
        return ModelSearch(name=model.name, hyperparameters=dict(sorted(spaces.items())))

    def _check(self, name: str, needs: str, value: object, model: ModelDefinition, read: _Read) -> None:
        path, space = read.get(name, ((), None))
        if space is None or space == _default(model, name):
            return
        _, other = read.get(needs, ((), _default(model, needs)))
        if other is not None and other != Choice(values=(value,)):
            word = str(value).lower()
            hint = f"write `[{needs}]` and below it `value = {word}`"
            self.issues.add(path, f"has an effect only if {needs} is {word}", hint=hint)


def _default(model: ModelDefinition, name: str) -> Choice:
    return Choice(values=(model.hyperparameters[name].default,))


def _names(models: Iterable[ModelDefinition]) -> list[str]:
    return sorted({name for model in models for name in model.hyperparameters})
