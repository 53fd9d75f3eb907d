"""One value of one hyperparameter: is it legal, and of what type?"""

from __future__ import annotations

from dmls_core.spec.definitions import HyperparameterDefinition, Scalar
from dmls_core.spec.findings import Findings
from dmls_core.spec.positions import Path
from dmls_core.spec.words import looks_bare, quoted

_NUMBERS = {
    "int": "an integer",
    "float": "a number",
    "count": "an integer",
    "bool": "true or false",
    "choice": "",
}


def expected(definition: HyperparameterDefinition) -> str:
    """Say what a hyperparameter takes."""
    numbers = _NUMBERS[definition.kind]
    if definition.low is not None:
        numbers += f" above {definition.low}" if definition.low_open else f" from {definition.low}"
        numbers += f" to {definition.high:,}"
    if definition.kind == "count":
        numbers += f" or a share above 0 up to {definition.share_high}"
    words = ", ".join(map(quoted, definition.choices))
    return " or ".join(part for part in (numbers, words) if part)


def read_value(
    definition: HyperparameterDefinition, value: object, path: Path, findings: Findings
) -> Scalar | None:
    """Return ``value`` as the hyperparameter's own type; ``None`` means that it was noted as wrong."""
    if isinstance(value, str):
        if value in definition.choices:
            return value
    elif isinstance(value, bool):
        if definition.kind == "bool":
            return value
    elif isinstance(value, int | float):
        number = _cast(definition, value)
        if number is not None:
            if _in_bounds(definition, number):
                return number
            findings.add(
                path,
                f"is out of bounds for {definition.name}",
                found=value,
                expected=expected(definition),
            )
            return None
    findings.add(
        path,
        f"is not a value of {definition.name}",
        found=value,
        expected=expected(definition),
        hint=_mend(definition, value),
        word=value,
        names=definition.choices,
    )
    return None


def _cast(definition: HyperparameterDefinition, value: float) -> int | float | None:
    if definition.kind == "count" or (definition.kind == "int" and isinstance(value, int)):
        return value
    return float(value) if definition.kind == "float" else None


def _in_bounds(definition: HyperparameterDefinition, value: float) -> bool:
    if definition.kind == "count" and isinstance(value, float):
        return 0.0 < value <= definition.share_high
    if definition.low is not None and (
        value < definition.low or (definition.low_open and value == definition.low)
    ):
        return False
    return definition.high is None or value <= definition.high


def _mend(definition: HyperparameterDefinition, value: object) -> str:
    if definition.kind == "int" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if definition.kind != "choice" and looks_bare(value):
        return "leave the quotes out"
    return ""
