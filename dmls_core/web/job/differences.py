"""What differs between specs, parameters and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Difference(NamedTuple):
    """One key whose values are not all the same; ``None`` where a side lacks it."""

    key: str
    values: tuple[Any, ...]


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a document's leaves by dotted key.

    Entries of a list of tables that have a ``name``, as a spec's models and hyperparameters, are keyed by it,
    so that an added one does not change all that follow.
    """
    found: dict[str, Any] = {}
    for key, value in document.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flatten(value, f"{path}.")
        elif isinstance(value, Sequence) and value and all(_is_named(entry) for entry in value):
            for entry in value:
                rest = {name: part for name, part in entry.items() if name != "name"}
                found |= flatten(rest, f"{path}.{entry['name']}.") or {f"{path}.{entry['name']}": True}
        else:
            found[path] = list(value) if isinstance(value, tuple) else value
    return found


def differences(*documents: Mapping[str, Any]) -> list[Difference]:
    """Return the leaves that are not the same in all ``documents``, by key."""
    leaves = [flatten(document) for document in documents]
    keys = sorted(set().union(*leaves))
    rows = [Difference(key, tuple(found.get(key) for found in leaves)) for key in keys]
    return [row for row in rows if any(value != row.values[0] for value in row.values[1:])]


def _is_named(entry: object) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
