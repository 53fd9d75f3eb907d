"""Parse and validate ``spec.toml``; report every issue at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field

from dmls_core.settings import SpecLimits
from dmls_core.spec import rules
from dmls_core.spec.column_rules import check_columns, check_labels
from dmls_core.spec.definitions import ModelDefinition
from dmls_core.spec.issues import IssueCollector
from dmls_core.spec.rules import check_evaluation, check_search, read_trials
from dmls_core.spec.search_space_parser import read_models, read_searches
from dmls_core.spec.spec import ModelSearch, Spec
from dmls_core.spec.table_parser import read_table
from dmls_core.spec.tables import (
    RESERVED,
    TABLES,
    TAGS,
    Columns,
    Data,
    Drift,
    Evaluation,
    Expectations,
    Owner,
    Resources,
    Schedule,
    Search,
    Table,
    Window,
)
from dmls_core.spec.toml_io import read_document

Check = Callable[[Spec, IssueCollector], None]


def parse_spec(
    source: bytes,
    catalogue: Mapping[str, ModelDefinition],
    *,
    file: str = "spec.toml",
    limits: SpecLimits | None = None,
    checks: Sequence[Check] = (),
) -> Spec:
    """Return the validated spec with every default.

    ``file`` is the name in messages; ``limits`` are by default those of the environment. ``checks`` follow if
    the spec is otherwise valid.

    Raises:
        SpecError: with every issue, in file order.
    """
    limits = limits or SpecLimits.from_environment()
    document = read_document(source, file, limits)
    return check_document(
        document.data, catalogue, IssueCollector(file, document.positions, limits), limits, checks
    )


def check_document(
    top: dict[str, Any],
    catalogue: Mapping[str, ModelDefinition],
    issues: IssueCollector,
    limits: SpecLimits,
    checks: Sequence[Check] = (),
) -> Spec:
    """Validate the keys and tables of a spec, like ``parse_spec``; ``issues`` knows their positions."""
    models = read_models(top, catalogue, issues, limits)
    searches = read_searches(top, models, catalogue, issues, limits)
    n_trials = read_trials(top.get("n_trials"), searches, issues, limits)
    tables = _read_tables(top, issues)
    for table in tables.values():
        _check_table(table, top, issues, limits)
    if models:
        _check_with_model(tables, models[0], searches, issues, limits)
    tags = rules.read_tags(top.get(TAGS, {}), issues, limits)
    issues.raise_any()
    _check_intervals(tables, issues)
    spec = Spec(
        task=models[0].task,
        models=searches,
        n_trials=n_trials,
        tags=tags,
        **tables,  # type: ignore[arg-type]
    )
    for check in checks:
        check(spec, issues)
    issues.raise_any()
    return spec


def _read_tables(top: dict[str, Any], issues: IssueCollector) -> dict[str, Table]:
    if "columns" not in top:
        hint = 'write `[columns]` and below it `target = "…"`, the column to predict'
        issues.add(("columns",), "is missing", expected="a table", hint=hint)
    tables: dict[str, Table] = {}
    for name, kind in TABLES.items():
        if name in top:
            table = read_table(kind, top[name], (name,), issues)
            if table is not None:
                tables[name] = table
    return tables


def _check_table(table: Table, top: dict[str, Any], issues: IssueCollector, limits: SpecLimits) -> None:
    match table:
        case Columns():
            check_columns(table, top["columns"], issues, limits)
        case Data():
            rules.check_data(table, issues)
        case Expectations():
            rules.check_expectations(table, issues)
        case Schedule():
            rules.check_schedule(table, issues)
        case Resources():
            rules.check_resources(table, issues)
        case Owner():
            rules.check_owner(table, issues)


def _check_intervals(tables: dict[str, Table], issues: IssueCollector) -> None:
    columns, data, schedule = tables.get("columns"), tables.get("data", Data()), tables.get("schedule")
    if isinstance(columns, Columns) and isinstance(data, Data) and isinstance(schedule, Schedule | None):
        rules.check_intervals(columns, data, schedule, issues)
        drift, owner = tables.get("drift"), tables.get("owner", Owner())
        if isinstance(drift, Drift | None):
            check_labels(columns, data, drift, issues)
        if isinstance(owner, Owner):
            rules.check_deadline(schedule, owner, issues)


def _check_with_model(
    tables: dict[str, Table],
    model: ModelDefinition,
    searches: Sequence[ModelSearch],
    issues: IssueCollector,
    limits: SpecLimits,
) -> None:
    """Check the tables that depend on the model, and add the model's defaults."""
    search, evaluation = tables.get("search", Search()), tables.get("evaluation", Evaluation())
    columns = tables.get("columns")
    has_time = not isinstance(columns, Columns) or columns.time is not None
    if isinstance(search, Search):
        tables["search"] = check_search(search, model, searches, issues, limits)
    if isinstance(evaluation, Evaluation):
        tables["evaluation"] = check_evaluation(evaluation, model, has_time, issues)


class DataChanges(Table):
    """Other data for one run; keys as in ``[data]``."""

    path: str | None = Field(None, min_length=1, max_length=512, description="File name or pattern.")
    window: Window = Field(None, validate_default=False, description="Intervals that the run trains on.")


class Changes(Table):
    """Changes of the spec for one run; the job's spec stays."""

    deploy: bool = Field(False, description="Whether to deploy the model even if it is older or not better.")
    n_trials: Any = Field(None, description="Total number of trials.")
    seed: Any = Field(None, description="Seed of all random numbers.")
    data: DataChanges | None = Field(None, description="Other data: path, window.")
    hyperparameters: dict[str, Any] = Field(
        default_factory=dict, description="Hyperparameters as a spec's tables write them, by name."
    )

    @property
    def changes_spec(self) -> bool:
        """Whether the spec changes."""
        return bool(
            self.new_data or self.hyperparameters or self.n_trials is not None or self.seed is not None
        )

    @property
    def new_data(self) -> dict[str, Any]:
        """The changed keys of ``[data]``."""
        return self.data.model_dump(exclude_none=True) if self.data else {}


def changed_document(spec: Spec, changes: Changes, issues: IssueCollector) -> dict[str, Any]:
    """Return the tables of a ``spec.toml`` equivalent to ``spec`` with ``changes``, not validated yet.

    A change of one of several models stands below the model's name; ``issues`` gets impossible changes.
    """
    top = as_document(spec)
    for name, table in changes.hyperparameters.items():
        own = top.get(name) if any(model.name == name for model in spec.models) else None
        if own is not None and isinstance(table, dict):
            own.update(table)
        elif name in RESERVED:
            hint = "n_trials, seed and data have their own keys next to hyperparameters"
            issues.add(("hyperparameters", name), "is not a hyperparameter", hint=hint)
        else:
            for model in spec.models:
                top[model.name].pop(name, None)
            top[name] = table
    if changes.n_trials is not None:
        top["n_trials"] = changes.n_trials
    if changes.seed is not None:
        top["search"]["seed"] = changes.seed
    top["data"] |= changes.new_data
    return top


def as_document(spec: Spec) -> dict[str, Any]:
    """Return the tables of a ``spec.toml`` equivalent to ``spec``."""
    written = spec.model_dump(mode="json", exclude_none=True, exclude={"task", "models"})
    models = {
        model.name: {
            name: space.model_dump(mode="json", exclude_none=True)
            for name, space in model.hyperparameters.items()
        }
        for model in spec.models
    }
    # A spec has no empty lists of columns.
    written["columns"] = {key: value for key, value in written["columns"].items() if value != []}
    return {"model": list(models), **written, **models}
