"""Parse the table of a hyperparameter, such as ``[n_estimators]``, into a range or a choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmls_core.settings import SpecLimits
from dmls_core.spec.definitions import Choice, Hyperparameter, HyperparameterDefinition, Range, Scalar
from dmls_core.spec.issues import IssueCollector, describe, dotted, looks_bare, quoted
from dmls_core.spec.positions import Path
from dmls_core.spec.tables import KEYS as TOP_KEYS

_NUMBERS = {
    "int": "an integer",
    "float": "a number",
    "count": "an integer",
    "bool": "true or false",
    "choice": "",
}


def _expected(definition: HyperparameterDefinition) -> str:
    """Describe the legal values of a hyperparameter."""
    numbers = _NUMBERS[definition.kind]
    if definition.low is not None:
        numbers += f" above {definition.low}" if definition.low_open else f" from {definition.low}"
        numbers += f" to {definition.high:,}"
    if definition.kind == "count":
        numbers += f" or a share above 0 up to {definition.share_high}"
    words = ", ".join(map(quoted, definition.choices))
    return " or ".join(part for part in (numbers, words) if part)


def _read_value(
    definition: HyperparameterDefinition, value: object, path: Path, issues: IssueCollector
) -> Scalar | None:
    """Return ``value`` as the hyperparameter's own type; ``None`` after adding an issue."""
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
            issues.add(
                path,
                f"is out of bounds for {definition.name}",
                found=value,
                expected=_expected(definition),
            )
            return None
    issues.add(
        path,
        f"is not a value of {definition.name}",
        found=value,
        expected=_expected(definition),
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
        return "remove the quotes"
    return ""


_RANGE_KEYS = ("min", "max", "step", "log")
_KEYS = (*_RANGE_KEYS, "values", "value")

_SYNONYMS = {
    "low": "min", "lower": "min", "start": "min", "from": "min", "minimum": "min",
    "high": "max", "upper": "max", "stop": "max", "end": "max", "to": "max", "maximum": "max",
    "choices": "values", "options": "values", "categories": "values", "enum": "values",
    "default": "value", "fixed": "value", "log_scale": "log", "scale": "log",
}  # fmt: skip
"""Names of the keys in other tools."""


def read_hyperparameter(
    definition: HyperparameterDefinition,
    table: object,
    path: Path,
    issues: IssueCollector,
    limits: SpecLimits,
) -> Hyperparameter | None:
    """Validate one hyperparameter's table; ``None`` after adding its issues."""
    reader = _HyperparameterReader(definition, path, issues, limits)
    if not isinstance(table, dict):
        reader.note_not_a_table(table)
        return None
    before = len(issues)
    reader.note_unknown_keys(table)
    space = reader.space(table)
    return space if len(issues) == before else None


@dataclass(frozen=True, slots=True)
class _HyperparameterReader:
    definition: HyperparameterDefinition
    path: Path
    issues: IssueCollector
    limits: SpecLimits

    def _note(
        self, message: str, *keys: str | int, found: object = None, right: str = "", hint: str = ""
    ) -> None:
        path = (*self.path, *keys)
        if found is None:
            self.issues.add(path, message, expected=right, hint=hint)
        else:
            self.issues.add(path, message, found=found, expected=right, hint=hint)

    def _value(self, value: object, *keys: str | int) -> Scalar | None:
        return _read_value(self.definition, value, (*self.path, *keys), self.issues)

    def note_not_a_table(self, value: object) -> None:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            line = "min = …` and `max = …"
        elif isinstance(value, list):
            rest = ", …" if len(value) > 3 else ""
            line = f"values = [{', '.join(map(describe, value[:3]))}{rest}]"
        else:
            line = f"value = {describe(value)}"
        self._note(
            "is a hyperparameter, which must be a table",
            found=value,
            right="a table",
            hint=f"write `[{dotted(self.path)}]` and below it `{line}`",
        )

    def note_unknown_keys(self, table: dict[str, Any]) -> None:
        for key in table:
            if key not in _KEYS:
                synonym = _SYNONYMS.get(key.lower())
                hint = f"did you mean {synonym}?" if synonym else ""
                if key in TOP_KEYS:
                    hint = f"{key} belongs above the first [table]"
                self.issues.add(
                    (*self.path, key),
                    "is not a key of a hyperparameter",
                    expected="min and max (with step or log), values, or value",
                    hint=hint,
                    word="" if hint else key,
                    names=_KEYS,
                )

    def space(self, table: dict[str, Any]) -> Hyperparameter | None:
        forms = [key for key in ("values", "value") if key in table]
        ranged = [key for key in _RANGE_KEYS if key in table]
        if len(forms) + bool(ranged) > 1:
            extra = ranged[0] if ranged else "value"
            self._note(
                f"cannot be combined with {forms[0]}", extra, hint="keep one of: min and max, values, value"
            )
            return None
        if ranged:
            return self._range(table)
        if "values" in table:
            return self._choice(table["values"])
        if "value" in table:
            value = self._value(table["value"], "value")
            return None if value is None else Choice(values=(value,))
        self._note(
            "defines no values",
            right=_expected(self.definition),
            hint="give min and max, values, or value",
        )
        return None

    def _choice(self, values: object) -> Choice | None:
        if not isinstance(values, list):
            hint = "" if isinstance(values, dict) else f"for one value write `value = {describe(values)}`"
            self._note("must be a list", "values", found=values, right="a list in square brackets", hint=hint)
            return None
        if not values:
            self._note("is empty", "values", found=values, right=_expected(self.definition))
            return None
        if len(values) > self.limits.values:
            most = f"at most {self.limits.values:,}"
            self._note("has too many values", "values", found=values, right=most)
            return None
        # With the type, since 1, 1.0 and true are equal in Python.
        read: dict[tuple[type, Scalar], None] = {}
        for index, raw in enumerate(values):
            value = self._value(raw, "values", index)
            if value is None:
                continue
            if (type(value), value) in read:
                self._note("appears twice", "values", index, found=raw, hint="list each value once")
            read[type(value), value] = None
        return Choice(values=tuple(value for _, value in read)) if read else None

    def _range(self, table: dict[str, Any]) -> Range | None:
        if self.definition.kind in ("choice", "bool"):
            right = _expected(self.definition)
            self._note("cannot be a range", right=right, hint="give values, or value")
            return None
        for key, other in (("min", "max"), ("max", "min")):
            if key not in table:
                context = f"next to {other}" if other in table else "for a range"
                self._note(f"is missing {context}", key, hint="a range needs min and max")
        log = table.get("log", False)
        if not isinstance(log, bool):
            self._note("must be true or false", "log", found=log, right="true or false")
        low, high = (self._bound(table[key], key) if key in table else None for key in ("min", "max"))
        step = self._step(table["step"]) if "step" in table else None
        if low is None or high is None:
            return None
        if type(low) is not type(high):
            self._note(
                "must have the same type as min: both integers, or both floats",
                "max",
                found=high,
                hint="an integer is a count, a float is a share",
            )
            return None
        self._check(low, high, step, log is True)
        return Range(min=low, max=high, step=step, log=log is True)

    def _bound(self, value: object, key: str) -> float | None:
        if isinstance(value, str) and value in self.definition.choices:
            hint = f"words belong in values: values = [{describe(value)}, …]"
            self._note("must be a number in a range", key, found=value, hint=hint)
            return None
        number = self._value(value, key)
        return None if isinstance(number, str) else number

    def _step(self, value: object) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            self._note("must be a number above 0", "step", found=value, right="a number above 0")
            return None
        return float(value) if self.definition.kind == "float" else value

    def _check(self, low: float, high: float, step: float | None, log: bool) -> None:
        width, most = high - low, self.limits.range_width
        if low == high:
            hint = f"for one value write `value = {describe(low)}` alone"
            self._note("is the same as min", "max", found=high, hint=hint)
        elif low > high:
            self._note("is above max", "min", found=low, right=f"less than {describe(high)}")
        elif isinstance(low, int) and width > most:
            self._note("makes the range too wide", "max", found=high, right=f"at most {most:,} above min")
        if log and low <= 0:
            self._note("must be above 0 with log = true", "min", found=low, right="more than 0")
        if step is None:
            return
        if log:
            self._note("cannot be combined with log = true", "step", hint="remove one of them")
        if isinstance(low, int) and not isinstance(step, int):
            self._note("must be an integer, as min and max are", "step", found=step, right="an integer")
        elif 0 < width < step:
            self._note("is wider than the range", "step", found=step, right=f"at most {width}")
        elif width / step > most:
            right = f"at most {most:,} steps from min to max"
            self._note("is too small for the range", "step", found=step, right=right)
