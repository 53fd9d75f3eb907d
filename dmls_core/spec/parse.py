"""``spec.toml`` to a spec: every issue is found before the first is reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dmls_core.settings import SpecLimits
from dmls_core.spec import table_rules
from dmls_core.spec.base import Table
from dmls_core.spec.column_rules import check_columns
from dmls_core.spec.definitions import ModelDefinition
from dmls_core.spec.document import read_document
from dmls_core.spec.findings import Findings
from dmls_core.spec.label_rules import check_labels
from dmls_core.spec.model import ModelSearch, Spec
from dmls_core.spec.model_rules import check_evaluation, check_search, read_trials
from dmls_core.spec.read_models import read_models
from dmls_core.spec.read_searches import read_searches
from dmls_core.spec.read_tables import read_table
from dmls_core.spec.reserved import TABLES, TAGS
from dmls_core.spec.tables import (
    Columns,
    Data,
    Drift,
    Evaluation,
    Expectations,
    Owner,
    Resources,
    Schedule,
    Search,
)

Check = Callable[[Spec, Findings], None]
"""A further check of a spec that is otherwise in order."""


def parse_spec(
    source: bytes,
    catalogue: Mapping[str, ModelDefinition],
    *,
    file: str = "spec.toml",
    limits: SpecLimits | None = None,
    checks: Sequence[Check] = (),
) -> Spec:
    """Parse and validate a spec, and write every default into it.

    Args:
        source: content of ``spec.toml``.
        catalogue: the models that there are.
        file: name of the file in messages.
        limits: how large it may be; read from the environment if left out.
        checks: further checks, made once all else is in order.

    Raises:
        SpecError: with every issue, in file order.
    """
    limits = limits or SpecLimits.from_environment()
    document = read_document(source, file, limits)
    return check_document(
        document.data, catalogue, Findings(file, document.positions, limits), limits, checks
    )


def check_document(
    top: dict[str, Any],
    catalogue: Mapping[str, ModelDefinition],
    findings: Findings,
    limits: SpecLimits,
    checks: Sequence[Check] = (),
) -> Spec:
    """Validate the content of a spec, as ``parse_spec`` does.

    Args:
        top: the tables.
        catalogue: the models that there are.
        findings: takes what is wrong, and knows where things stand.
        limits: how large it may be.
        checks: further checks, made once all else is in order.

    Raises:
        SpecError: with every issue, in file order.
    """
    models = read_models(top, catalogue, findings, limits)
    searches = read_searches(top, models, catalogue, findings, limits)
    n_trials = read_trials(top.get("n_trials"), searches, findings, limits)
    tables = _read_tables(top, findings)
    for table in tables.values():
        _check_table(table, top, findings, limits)
    if models:
        _check_with_model(tables, models[0], searches, findings, limits)
    tags = table_rules.read_tags(top.get(TAGS, {}), findings, limits)
    findings.raise_any()
    _check_intervals(tables, findings)
    spec = Spec(
        task=models[0].task,
        models=searches,
        n_trials=n_trials,
        tags=tags,
        **tables,  # type: ignore[arg-type]
    )
    for check in checks:
        check(spec, findings)
    findings.raise_any()
    return spec


def _read_tables(top: dict[str, Any], findings: Findings) -> dict[str, Table]:
    """Return the reserved tables that are there and well-formed, by name."""
    if "columns" not in top:
        hint = 'write `[columns]` and below it `target = "…"`, the column to predict'
        findings.add(("columns",), "is missing", expected="a table", hint=hint)
    tables: dict[str, Table] = {}
    for name, kind in TABLES.items():
        if name in top:
            table = read_table(kind, top[name], (name,), findings)
            if table is not None:
                tables[name] = table
    return tables


def _check_table(table: Table, top: dict[str, Any], findings: Findings, limits: SpecLimits) -> None:
    match table:
        case Columns():
            check_columns(table, top["columns"], findings, limits)
        case Data():
            table_rules.check_data(table, findings)
        case Expectations():
            table_rules.check_expectations(table, findings)
        case Schedule():
            table_rules.check_schedule(table, findings)
        case Resources():
            table_rules.check_resources(table, findings)
        case Owner():
            table_rules.check_owner(table, findings)


def _check_intervals(tables: dict[str, Table], findings: Findings) -> None:
    columns, data, schedule = tables.get("columns"), tables.get("data", Data()), tables.get("schedule")
    if isinstance(columns, Columns) and isinstance(data, Data) and isinstance(schedule, Schedule | None):
        table_rules.check_intervals(columns, data, schedule, findings)
        drift, owner = tables.get("drift"), tables.get("owner", Owner())
        if isinstance(drift, Drift | None):
            check_labels(columns, data, drift, findings)
        if isinstance(owner, Owner):
            table_rules.check_deadline(schedule, owner, findings)


def _check_with_model(
    tables: dict[str, Table],
    model: ModelDefinition,
    searches: Sequence[ModelSearch],
    findings: Findings,
    limits: SpecLimits,
) -> None:
    """Check the tables that depend on the model, and write the model's defaults into them."""
    search, evaluation = tables.get("search", Search()), tables.get("evaluation", Evaluation())
    columns = tables.get("columns")
    has_time = not isinstance(columns, Columns) or columns.time is not None
    if isinstance(search, Search):
        tables["search"] = check_search(search, model, searches, findings, limits)
    if isinstance(evaluation, Evaluation):
        tables["evaluation"] = check_evaluation(evaluation, model, has_time, findings)
