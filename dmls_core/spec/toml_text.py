"""A spec's document back to TOML, for forms that write specs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping

from dmls_core.errors import SpecError
from dmls_core.spec.reserved import KEYS, RESERVED

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 100
"""Characters from which a list is broken over several lines."""


def toml_text(document: Mapping[str, object]) -> str:
    """Return a document as TOML: the keys at the top first, reserved tables next, hyperparameters last.

    Args:
        document: what ``tomllib`` would read: texts, numbers, truth values, lists of them and tables.

    Raises:
        SpecError: it holds something that a spec cannot hold.
    """
    top = [name for name in KEYS if name in document]
    top += [name for name, value in document.items() if name not in KEYS and not isinstance(value, Mapping)]
    lines = [f"{_key(name)} = {_value(document[name])}" for name in top]
    reserved = [name for name in RESERVED if isinstance(document.get(name), Mapping)]
    tables = [name for name, value in document.items() if isinstance(value, Mapping) and name not in reserved]
    for name in (*reserved, *tables):
        lines += _table((name,), document[name])
    return "\n".join(lines).strip("\n") + "\n"


def _table(path: tuple[str, ...], table: object) -> Iterator[str]:
    if not isinstance(table, Mapping):
        raise SpecError(f"{'.'.join(path)} must be a table")
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    inner = {name: value for name, value in table.items() if isinstance(value, Mapping)}
    if plain or not inner:
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
        yield from (f"{_key(name)} = {_value(value)}" for name, value in plain.items())
    for name, value in inner.items():
        yield from _table((*path, name), value)


def _key(name: object) -> str:
    return name if isinstance(name, str) and _BARE.fullmatch(name) else _text(str(name))


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value)
        case str():
            return _text(value)
        case list() | tuple():
            parts = [_value(part) for part in value]
            line = f"[{', '.join(parts)}]"
            return line if len(line) <= _WIDTH else "[\n" + "".join(f"  {part},\n" for part in parts) + "]"
    raise SpecError(f"{str(value)[:40]!r} cannot be written into a spec")


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SpecError(f"{text[:40]!r} cannot be written into a spec: it is not valid Unicode") from error
    # JSON's escapes are TOML's, which has one control character more.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
