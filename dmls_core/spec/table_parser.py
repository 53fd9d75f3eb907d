"""Parse reserved tables with pydantic, and translate its errors for authors of specs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dmls_core.spec.issues import IssueCollector, dotted, looks_bare, quoted
from dmls_core.spec.positions import Path
from dmls_core.spec.tables import KEYS, Table

AnyTable = TypeVar("AnyTable", bound=Table)

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
    "early_stop": "a number of trials from 1 to 10,000, or a table",
    "memory": 'a size of at least 64 MiB, such as "8 GiB"',
    "channel": 'the name of a notifier, such as "email", or with a connection, such as "webhook:alerts"',
}

_PATTERNS = {
    "email": "an address such as ml-team@example.com",
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
    "target": 'name the column to predict: target = "species"',
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
    kind, found, context = detail["type"], detail["input"], detail.get("ctx", {})
    loc = tuple(part for part in detail["loc"] if part != "[key]")
    place: Path = (*path, *loc)
    key = str(loc[-1])
    if kind == "too_short" and found:
        return  # Empty only without its wrong elements, which are reported themselves.
    if kind == "missing":
        issues.add(place, "is missing", hint=_EXAMPLES.get(key, ""))
    elif kind == "extra_forbidden":
        names = _keys(table, loc[:-1])
        hint = f"{key} belongs above the first [table]" if key in KEYS else ""
        message = f"is not a key of [{dotted(place[:-1])}]"
        issues.add(
            place, message, expected=", ".join(names), hint=hint, word="" if hint else key, names=names
        )
    elif kind == "literal_error":
        names = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
        right = f"one of {', '.join(map(quoted, names))}"
        issues.add(place, f"must be {right}", found=found, expected=right, word=found, names=names)
    elif kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        right = f"{words} {context[bound]:,}"
        issues.add(place, f"must be {right}", found=found, expected=right)
    elif kind in _LENGTHS:
        message, right = _LENGTHS[kind]
        issues.add(place, message, found=found, expected=right.format(**context))
    else:
        right = _EXPECTED.get(kind, "")
        if kind == "string_pattern_mismatch":
            right = _PATTERNS.get(key, "a name without control characters")
        message = f"must be {right}" if right else detail["msg"].lower()
        issues.add(place, message, found=found, expected=right, hint=_mend(kind, found))


def _keys(table: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    if not loc:
        return list(table.model_fields)
    inner: Any = table.model_fields[str(loc[0])].annotation
    # Either the one table of tables, [expectations.columns.NAME], or a table that may be left out.
    named = get_origin(inner) is dict
    (below,) = (one for one in get_args(inner) if isinstance(one, type) and issubclass(one, BaseModel))
    return _keys(below, loc[2:] if named else loc[1:])


def _mend(kind: str, found: object) -> str:
    if kind == "tuple_type" and isinstance(found, str):
        return "write a list: [" + quoted(found[:40]) + "]"
    if kind in ("int_type", "float_type", "number_type", "bool_type") and looks_bare(found):
        return "remove the quotes"
    if kind == "string_type" and not isinstance(found, list | dict):
        return "put it in quotes"
    return ""
