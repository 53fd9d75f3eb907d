"""Types of the values in a spec; 1, 1.0 and true stay distinct."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from dmls_core import extensions


def _number(value: object) -> int | float:
    if type(value) is int:
        if -(2**63) <= value < 2**63:
            return value
    elif type(value) is float and value - value == 0.0:  # neither NaN nor infinite
        return value
    raise PydanticCustomError("number_type", "must be a number")


def _scalar(value: object) -> bool | int | float | str:
    if isinstance(value, bool | str):
        return value
    try:
        return _number(value)
    except PydanticCustomError:
        raise PydanticCustomError("scalar_type", "must be a number, a string, true or false") from None


_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_MEMORY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([kmgt]?)i?b?", re.IGNORECASE)
_LEAST_MEMORY = 64 * 2**20


def _memory(value: str) -> str:
    match = _MEMORY.fullmatch(value)
    if match is None or float(match[1]) * _UNITS[match[2].lower()] < _LEAST_MEMORY:
        raise PydanticCustomError("memory", "must be a size of at least 64 MiB")
    return value


def _window(value: object) -> int | str:
    if value == "all" or (type(value) is int and 1 <= value <= _MAX_WINDOW):
        return value
    raise PydanticCustomError("window_type", "must be a number of intervals")


def _workers(value: object) -> int | str:
    if value == "auto" or (type(value) is int and 1 <= value <= _MAX_WORKERS):
        return value
    raise PydanticCustomError("workers_type", "must be a number of trainers")


def _ensemble(value: object) -> bool | str:
    if value == "auto" or isinstance(value, bool):
        return value
    raise PydanticCustomError("ensemble_type", "must say whether models are combined")


def _file_format(value: str) -> str:
    names = extensions.names("dmls.formats")
    if value not in names:
        expected = ", ".join(repr(name) for name in names)
        raise PydanticCustomError("literal_error", "must be one of {expected}", {"expected": expected})
    return value


_MAX_WORKERS = 256

AUTO_WORKERS = 8
"""Most trainers of a search with ``workers = "auto"``."""

Workers = Annotated[
    Any,
    PlainValidator(_workers),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": _MAX_WORKERS}, {"const": "auto"}]}
    ),
]
"""Number of trainers that share a search, or ``"auto"``."""

Combined = Annotated[
    Any,
    PlainValidator(_ensemble),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"const": "auto"}]}),
]
"""Whether models are combined: true, false or ``"auto"``."""

_MAX_WINDOW = 1000

Window = Annotated[
    Any,
    PlainValidator(_window),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": _MAX_WINDOW}, {"const": "all"}]}),
]
"""Number of intervals that a run trains on, or ``"all"``."""

Number = Annotated[Any, PlainValidator(_number), WithJsonSchema({"type": "number"})]
"""An integer that stays an integer, or a float; pydantic's union would not distinguish 1 and 1.0."""

Value = Annotated[Any, PlainValidator(_scalar), WithJsonSchema({"type": ["number", "string", "boolean"]})]
"""One value of a hyperparameter or a cell; 1, 1.0 and true stay distinct."""

Memory = Annotated[
    str, AfterValidator(_memory), Field(pattern="^[0-9.]+ ?[kmgtKMGT]?i?[bB]?$", examples=["8 GiB", "512m"])
]
"""An amount of memory: ``"8 GiB"``, or ``"8g"`` as Docker writes it."""

_CHANNEL = r"[a-z0-9][a-z0-9_-]{0,62}(:[a-z0-9][a-z0-9_-]{0,62})?"


def _channel(value: str) -> str:
    if re.fullmatch(_CHANNEL, value) is None:
        raise PydanticCustomError("channel", "must be a channel")
    return value


Channel = Annotated[
    str,
    AfterValidator(_channel),
    WithJsonSchema({"type": "string", "pattern": f"^{_CHANNEL}$", "examples": ["email", "webhook:alerts"]}),
]
"""A notifier, such as ``"email"``, and after a colon the name of its connection: ``"webhook:alerts"``."""

Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]

Names = Annotated[tuple[Name, ...], Field(strict=False)]
"""Names of columns; TOML and JSON have lists, not tuples."""

FileFormat = Annotated[
    str,
    AfterValidator(_file_format),
    WithJsonSchema({"type": "string", "examples": ["csv", "parquet", "jsonl", "excel"]}),
]
"""The name of an installed format of data files."""

Encoding = Literal[
    "utf-8",
    "utf-16",
    "windows-1252",
    "windows-1250",
    "windows-1251",
    "windows-1253",
    "windows-1254",
    "windows-1255",
    "windows-1256",
    "iso-8859-2",
    "cp850",
    "koi8-r",
    "cp932",
    "euc-jp",
    "gb18030",
    "big5",
    "cp949",
]
"""Encodings of a text, by their names in Python."""


def _check_missing_text(value: str) -> str:
    if value != value.strip() or not value.isprintable():
        raise PydanticCustomError("mark", "must be printable text without blanks around it")
    try:
        float(value)
    except ValueError:
        if value.lower() not in ("true", "false"):
            return value
    raise PydanticCustomError("mark", "must be neither a number nor a boolean")


Mark = Annotated[str, Field(min_length=1, max_length=40), AfterValidator(_check_missing_text)]

Marks = Annotated[tuple[Mark, ...], Field(strict=False)]
"""Texts of missing values."""

MissingOrValue = Literal["NA", "N/A", "n/a", "NULL", "null", "None"]
"""A text of ``encoder.MISSING`` that may be a value, such as the code of Namibia."""

NotMissing = Annotated[tuple[MissingOrValue, ...], Field(strict=False, max_length=6)]
