"""Find what packages register with DMLS by entry points, such as engines, file formats and stores.

What DMLS ships is registered the same way, in ``pyproject.toml``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from dmls_core.errors import PlatformError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, SelectableGroups

Group = Literal[
    "dmls.engines",
    "dmls.formats",
    "dmls.metrics",
    "dmls.notifiers",
    "dmls.runners",
    "dmls.samplers",
    "dmls.serving_formats",
    "dmls.stores",
]

T = TypeVar("T")

GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True, slots=True)
class Extension:
    """An installed extension, as ``dmls doctor`` lists it.

    Attributes:
        group: the extension point.
        name: the name that specs, settings and URLs use.
        package: name and version of the distribution that registers it.
        path: ``module:attribute`` of the object.
    """

    group: Group
    name: str
    package: str
    path: str


def names(group: Group) -> tuple[str, ...]:
    """Return the names registered in ``group``, sorted."""
    return tuple(sorted(_entries(group)))


@cache
def load(group: Group, name: str) -> Any:  # noqa: ANN401 - the caller checks the type
    """Import the object registered as ``name`` in ``group``.

    Raises:
        PlatformError: the name is not registered, or its module cannot be imported.
    """
    entry = _entries(group).get(name)
    if entry is None:
        close = difflib.get_close_matches(name, names(group), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"installed: {', '.join(names(group)) or 'none'}"
        raise PlatformError(f"no extension {name!r} is registered in {group!r}; {hint}")
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise PlatformError(f"extension {name!r} ({_package(entry)}, {entry.value}): {error}") from error


def installed() -> list[Extension]:
    """List every registered extension, by group and name."""
    return [
        Extension(group, name, _package(entry), entry.value)
        for group in GROUPS
        for name, entry in sorted(_entries(group).items())
    ]


class LazyMapping(Mapping[str, T]):
    """A read-only mapping that calls ``make`` for its content when it is first read."""

    def __init__(self, make: Callable[[], Mapping[str, T]]) -> None:
        self._make = cache(make)

    def __getitem__(self, name: str) -> T:
        return self._make()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._make())

    def __len__(self) -> int:
        return len(self._make())


@cache
def _all_entries() -> SelectableGroups:
    """Return every entry point; one scan of the installed packages (about 10 ms) serves all groups."""
    # Imported here: it takes a quarter of the command line's start.
    from importlib.metadata import entry_points

    return entry_points()


@cache
def _entries(group: Group) -> dict[str, EntryPoint]:
    entries: dict[str, EntryPoint] = {}
    for entry in _all_entries().select(group=group):
        other = entries.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise PlatformError(
                f"two packages register {entry.name!r} in {group!r}: {_package(other)} and "
                f"{_package(entry)}; uninstall one of them"
            )
    if not entries:
        # DMLS registers some in each group: its metadata is missing or older than its code.
        raise PlatformError(f"nothing is registered under {group!r}; install DMLS again: pip install dmls")
    return entries


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown package"
