"""Parse the JSON of a request strictly: what programs read in different ways is refused."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from dmls_core.errors import DataError, ValidationIssue

_SHOWN = 60


def load_json(content: bytes | str) -> Any:  # noqa: ANN401
    """Parse JSON as RFC 8259 has it; a key that an object repeats is an error.

    Raises:
        DataError: it is not JSON, nested too deeply, holds a number beyond 64-bit floats, or repeats a key.
    """
    try:
        return json.loads(
            content, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_reject_constant
        )
    except json.JSONDecodeError as error:
        issue = ValidationIssue(f"the body is not JSON: {error.msg}", line=error.lineno, column=error.colno)
        raise DataError(issue) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"the body is not JSON: {str(error)[:200]}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names: set[str] = set()
        repeated = next(name for name, _ in pairs if name in names or names.add(name))  # type: ignore[func-returns-value]
        raise DataError(ValidationIssue(f"the key {repeated[:_SHOWN]!r} occurs twice in an object"))
    return values


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise DataError(ValidationIssue(f"{text[:_SHOWN]} is too large a number"))
    return number


def _reject_constant(text: str) -> NoReturn:
    raise DataError(ValidationIssue(f"{text} is not a number of JSON", hint="send null for a missing value"))
