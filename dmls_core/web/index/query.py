"""Search, filter, sort and cut the rows of the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dmls_core.web.index.row import JobRow

Sort = Literal["job", "state", "owner", "model", "score", "champion", "next", "drift", "queue", "updated"]

KEYS: dict[Sort, Callable[[JobRow], Any]] = {
    "job": lambda row: (row.team, row.name),
    "state": lambda row: row.state,
    "owner": lambda row: row.owner or None,
    "model": lambda row: row.models or None,
    "score": lambda row: row.score,
    "champion": lambda row: row.champion or row.served,
    "next": lambda row: row.next_run,
    "drift": lambda row: row.drift,
    "queue": lambda row: row.queue,
    "updated": lambda row: row.updated or None,
}
"""What each column is sorted by; ``None`` comes last either way."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of the table.

    Attributes:
        text: words, all of which must occur in team, name, owner, model or message.
        states: only these; empty: all but retired jobs.
        team: only this team's.
        model: only those that train it.
        sort: the column.
        descending: the largest first.
        offset: rows left out.
        limit: most rows returned.
    """

    text: str = ""
    states: Collection[str] = ()
    team: str = ""
    model: str = ""
    sort: Sort = "updated"
    descending: bool = True
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the rows that were found.

    Attributes:
        rows: the part.
        total: how many were found.
        states: how many of each state there are, whatever ``Query.states`` says.
        teams: all teams that the caller may see.
        models: all models likewise.
    """

    rows: tuple[JobRow, ...]
    total: int
    states: dict[str, int]
    teams: tuple[str, ...]
    models: tuple[str, ...]


def search(rows: Sequence[JobRow], query: Query) -> Page:
    """Return the rows that ``query`` asks for."""
    words = query.text.casefold().split()
    found = [row for row in rows if _fits(row, query, words)]
    states = Counter(row.state for row in found)
    wanted = set(query.states)
    found = [row for row in found if (row.state in wanted if wanted else row.state != "retired")]
    key = KEYS[query.sort]
    keyed = [(key(row), row) for row in found]
    known = sorted(
        ((value, row) for value, row in keyed if value is not None),
        key=lambda pair: (pair[0], pair[1].team, pair[1].name),
        reverse=query.descending,
    )
    ordered = [row for _, row in known] + [row for value, row in keyed if value is None]
    return Page(
        rows=tuple(ordered[query.offset : query.offset + query.limit]),
        total=len(ordered),
        states=dict(sorted(states.items())),
        teams=tuple(sorted({row.team for row in rows})),
        models=tuple(sorted({model for row in rows for model in row.models})),
    )


def _fits(row: JobRow, query: Query, words: Sequence[str]) -> bool:
    if (query.team and row.team != query.team) or (query.model and query.model not in row.models):
        return False
    if not words:
        return True
    text = f"{row.team}/{row.name} {row.owner} {' '.join(row.models)} {row.state} {row.message}".casefold()
    return all(word in text for word in words)
