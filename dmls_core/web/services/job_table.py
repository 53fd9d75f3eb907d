"""Search, filter, sort, and page the table of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job, or one submission that has not become a job.

    Attributes:
        state: as in ``_status.json``; ``retired`` if the spec was deleted; ``registered`` until its status
            has been read.
        owner: owner that the spec names, or else the team.
        metric: metric of the scores, to ``maximize`` or ``minimize``; empty before the first run.
        scores: holdout scores of its runs, oldest first.
        served: version in Triton; ``champion`` is MLflow's, if a run reported it.
        version: version of the accepted spec and data.
        next_run: ISO time; ``None`` without a schedule.
        drift: latest verdict of the monitor, such as ``steady`` or ``drifted``.
        queue: position among the runs that wait for the same pool, from 1.
    """

    team: str
    name: str
    state: str = "registered"
    message: str = ""
    owner: str = ""
    models: tuple[str, ...] = ()
    metric: str = ""
    direction: str = ""
    scores: tuple[float, ...] = ()
    served: int | None = None
    champion: int | None = None
    version: int | None = None
    paused: bool = False
    next_run: str | None = None
    drift: str | None = None
    queue: int | None = None
    waiting: str = ""
    updated: str = ""

    @property
    def score(self) -> float | None:
        """Score of the latest run."""
        return self.scores[-1] if self.scores else None

    @property
    def dag_id(self) -> str:
        """DAG that decides who may see the job; a submission with invalid names never gets one."""
        return f"dmls.{self.team}.{self.name}"


Sort = Literal["job", "state", "owner", "model", "score", "champion", "next", "drift", "queue", "updated"]

SORT_KEYS: dict[Sort, Callable[[JobRow], Any]] = {
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
"""Sort key of each column; ``None`` comes last in either direction."""


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A query of the table.

    Attributes:
        text: words that must all occur in the team, name, owner, model, state, or message.
        states: only these states; empty for all but retired jobs.
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
    """One page of the matching rows.

    Attributes:
        total: number of matching rows on all pages.
        states: number of rows in each state, regardless of ``JobQuery.states``.
        teams: all teams that the caller may see; ``models`` are those of their jobs.
    """

    rows: tuple[JobRow, ...]
    total: int
    states: dict[str, int]
    teams: tuple[str, ...]
    models: tuple[str, ...]


def search(rows: Sequence[JobRow], query: JobQuery) -> Page:
    """Return the page of ``rows`` that ``query`` selects."""
    words = query.text.casefold().split()
    found = [row for row in rows if _matches(row, query, words)]
    states = Counter(row.state for row in found)
    wanted = set(query.states)
    found = [row for row in found if (row.state in wanted if wanted else row.state != "retired")]
    key = SORT_KEYS[query.sort]
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


def _matches(row: JobRow, query: JobQuery, words: Sequence[str]) -> bool:
    if (query.team and row.team != query.team) or (query.model and query.model not in row.models):
        return False
    if not words:
        return True
    text = f"{row.team}/{row.name} {row.owner} {' '.join(row.models)} {row.state} {row.message}".casefold()
    return all(word in text for word in words)
