"""Parse and validate ``spec.toml``; report every issue at once.

Pydantic parses the reserved tables; its errors are translated for authors of specs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from dmls_core.errors import SpecError
from dmls_core.settings import SpecLimits
from dmls_core.spec import rules
from dmls_core.spec.column_rules import check_columns, check_labels
from dmls_core.spec.data_table import Data, SpecTable
from dmls_core.spec.definitions import AUTO, ModelDefinition
from dmls_core.spec.issues import IssueCollector, dotted, looks_bare, quoted
from dmls_core.spec.positions import Path
from dmls_core.spec.rules import check_evaluation, check_search, read_trials
from dmls_core.spec.search_space_parser import read_models, read_searches
from dmls_core.spec.spec import ModelSearch, Spec
from dmls_core.spec.tables import (
    KEYS,
    RESERVED,
    TABLES,
    TAGS,
    Columns,
    Drift,
    Evaluation,
    Expectations,
    Owner,
    Resources,
    Schedule,
    Search,
)
from dmls_core.spec.toml_io import read_document
from dmls_core.spec.values import Window

AnyTable = TypeVar("AnyTable", bound=SpecTable)

_EXPECTED = {
    "string_type": "a string in quotes",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "number_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list in square brackets",
    "dict_type": "a table",
    "model_type": "a table",
    "scalar_type": "a number, a string, true or false",
    "window_type": 'an integer from 1 to 1,000, or "all"',
    "workers_type": 'an integer from 1 to 256, or "auto"',
    "ensemble_type": 'true, false or "auto"',
    "early_stop": "a number of trials from 1 to 10,000, or a table",
    "memory": 'a size of at least 64 MiB, such as "8 GiB"',
    "channel": 'the name of a notifier, such as "email", or with a connection, such as "webhook:alerts"',
}

_PATTERNS = {
    "email": "an address such as ml-team@example.com",
    "connection": "the id of an Airflow connection",
    "path": "an address such as s3://bucket/folder/",
    "memory": _EXPECTED["memory"],
}
"""Key -> description of its pattern; the other patterns are for names of columns."""

_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}

_LENGTHS = {
    "string_too_long": ("is too long", "at most {max_length} characters"),
    "string_too_short": ("is empty", "at least {min_length} character"),
    "too_short": ("is empty", "at least {min_length} element"),
}

_EXAMPLES = {
    "target": 'name the column to predict, such as target = "price"',
}


def read_table(table: type[AnyTable], value: object, path: Path, issues: IssueCollector) -> AnyTable | None:
    """Report the issues of ``value``; return it without wrong keys, ``None`` if that is not valid either."""
    if not isinstance(value, dict):
        hint = f"write [{dotted(path)}] and its keys below"
        issues.add(path, "must be a table", found=value, expected="a table", hint=hint)
        return None
    try:
        return table.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False)
    sound = deepcopy(value)
    for detail in details:
        _note(table, detail, path, issues)
        _remove(sound, detail["loc"])
    try:
        return table.model_validate(sound)
    except ValidationError:
        return None


def _remove(table: dict[str, Any], loc: tuple[int | str, ...]) -> None:
    """Remove the innermost key of ``loc``; a list is removed as a whole."""
    inner: Any = table
    for part, following in zip(loc, (*loc[1:], None), strict=True):
        child = inner.get(part)
        if following is None or following == "[key]" or not isinstance(child, dict):
            inner.pop(part, None)
            return
        inner = child


def _note(table: type[BaseModel], detail: ErrorDetails, path: Path, issues: IssueCollector) -> None:
    error_type, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    loc = tuple(part for part in detail["loc"] if part != "[key]")
    location: Path = (*path, *loc)
    key = str(loc[-1])
    if error_type == "too_short" and value:
        return  # Empty only without its wrong elements, which are reported themselves.
    if error_type == "missing":
        issues.add(location, "is missing", hint=_EXAMPLES.get(key, ""))
    elif error_type == "extra_forbidden":
        names = _keys(table, loc[:-1])
        hint = f"{key} belongs above the first [table]" if key in KEYS else ""
        message = f"is not a key of [{dotted(location[:-1])}]"
        issues.add(
            location, message, expected=", ".join(names), hint=hint, word="" if hint else key, names=names
        )
    elif error_type == "literal_error":
        names = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        right = f"one of {', '.join(map(quoted, names))}"
        issues.add(location, f"must be {right}", found=value, expected=right, word=value, names=names)
    elif error_type in _BOUNDS:
        words, bound = _BOUNDS[error_type]
        right = f"{words} {context[bound]:,}"
        issues.add(location, f"must be {right}", found=value, expected=right)
    elif error_type in _LENGTHS:
        message, right = _LENGTHS[error_type]
        issues.add(location, message, found=value, expected=right.format(**context))
    else:
        right = _EXPECTED.get(error_type, "")
        if error_type == "string_pattern_mismatch":
            right = _PATTERNS.get(key, "a name without control characters")
        message = f"must be {right}" if right else detail["msg"].lower()
        issues.add(location, message, found=value, expected=right, hint=_mend(error_type, value))


def _keys(table: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    if not loc:
        return list(table.model_fields)
    inner: Any = table.model_fields[str(loc[0])].annotation
    # Either the one table of tables, [expectations.columns.NAME], or a table that may be left out.
    named = get_origin(inner) is dict
    (below,) = (one for one in get_args(inner) if isinstance(one, type) and issubclass(one, BaseModel))
    return _keys(below, loc[2:] if named else loc[1:])


def _mend(error_type: str, value: object) -> str:
    if error_type == "tuple_type" and isinstance(value, str):
        return "write a list: [" + quoted(value[:40]) + "]"
    if error_type in ("int_type", "float_type", "number_type", "bool_type") and looks_bare(value):
        return "remove the quotes"
    if error_type == "string_type" and not isinstance(value, list | dict):
        return "put it in quotes"
    return ""


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


def read_owner(source: bytes, limits: SpecLimits) -> Owner | None:
    """Return ``[owner]`` of a spec that may be wrong otherwise; ``None`` if it has none or cannot be read."""
    try:
        document = read_document(source, "", limits).data
    except SpecError:
        return None
    return read_table(Owner, document.get("owner"), ("owner",), IssueCollector("", None, limits))


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
    if top.get("model") in tuple(AUTO) and len(models) > 1 and isinstance(top.get("search", {}), dict):
        top = {**top, "search": {"ensemble": "auto", **top.get("search", {})}}
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


def _read_tables(top: dict[str, Any], issues: IssueCollector) -> dict[str, SpecTable]:
    if "columns" not in top:
        hint = 'write `[columns]` and below it `target = "…"`, the column to predict'
        issues.add(("columns",), "is missing", expected="a table", hint=hint)
    tables: dict[str, SpecTable] = {}
    for name, model in TABLES.items():
        if name in top:
            table = read_table(model, top[name], (name,), issues)
            if table is not None:
                tables[name] = table
    return tables


def _check_table(table: SpecTable, top: dict[str, Any], issues: IssueCollector, limits: SpecLimits) -> None:
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
            rules.check_resources(table, issues, limits)
        case Owner():
            rules.check_owner(table, issues)


def _check_intervals(tables: dict[str, SpecTable], issues: IssueCollector) -> None:
    columns, data, schedule = tables.get("columns"), tables.get("data", Data()), tables.get("schedule")
    if isinstance(columns, Columns) and isinstance(data, Data) and isinstance(schedule, Schedule | None):
        rules.check_intervals(columns, data, schedule, issues)
        drift, owner = tables.get("drift"), tables.get("owner", Owner())
        if isinstance(drift, Drift | None):
            check_labels(columns, data, drift, issues)
        if isinstance(owner, Owner):
            rules.check_deadline(schedule, owner, issues)


def _check_with_model(
    tables: dict[str, SpecTable],
    model: ModelDefinition,
    searches: Sequence[ModelSearch],
    issues: IssueCollector,
    limits: SpecLimits,
) -> None:
    """Check the tables that depend on the model, and add the model's defaults."""
    search, evaluation = tables.get("search", Search()), tables.get("evaluation", Evaluation())
    columns = tables.get("columns")
    if isinstance(search, Search):
        tables["search"] = check_search(search, model, searches, issues, limits)
    if isinstance(evaluation, Evaluation):
        valid_columns = columns if isinstance(columns, Columns) else None
        tables["evaluation"] = check_evaluation(evaluation, valid_columns, model, issues)


class DataChanges(SpecTable):
    """Other data for one run; keys as in ``[data]``."""

    path: str | None = Field(None, min_length=1, max_length=512, description="File name or pattern.")
    window: Window = Field(None, validate_default=False, description="Intervals that the run trains on.")


class Changes(SpecTable):
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
    top = _as_document(spec)
    for name, table in changes.hyperparameters.items():
        model_tables = top.get(name) if any(model.name == name for model in spec.models) else None
        if model_tables is not None and isinstance(table, dict):
            model_tables.update(table)
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


def _as_document(spec: Spec) -> dict[str, Any]:
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
