"""Rules of elastic searches: when a helper joins, and which helper gives its slot back to a waiting run.

A helper is any worker of a search but the leader. Airflow gives it a slot that no run waits for
(``airflow/priority.py``). The rules are plain Python, with which ``tests/bench/elastic_queue.py`` simulates
queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

JOIN_DELAY_SECONDS = 20.0
"""Time after which a helper of ``workers = "auto"`` looks whether the search is worth its start."""

_JOIN_REMAINING_SECONDS = 60.0
"""Estimated rest of a search below which no helper of ``workers = "auto"`` joins: it loads data first."""

NOTICE_SECONDS = 5.0
"""Time in the queue from which a run counts as waiting: with a free slot it starts sooner."""

LAST_TRIAL_SECONDS = 10.0
"""Time that a helper gets to end its trial; then its trainer is ended, and another repeats the trial."""

SETTLE_SECONDS = 20.0
"""Time in which a run starts in a slot that was given back."""

PASSED_OVER_SECONDS = 60.0
"""A run that waited this long before a helper got its slot cannot use it: it is paused, or was canceled."""

_OVER = frozenset({"refitting", "exporting", "finished", "failed"})
"""States of ``progress.json`` in which a search has ended."""


def joining(progress: Mapping[str, Any] | None, *, eager: bool = False) -> Literal["now", "later", "never"]:
    """Return when a helper joins a search with this ``progress.json``; ``eager`` ones do not wait for it."""
    state = (progress or {}).get("state", "loading")
    if state in _OVER:
        return "never"
    if eager:
        return "now"
    remaining = (progress or {}).get("remaining_seconds")
    enough = remaining is None or remaining >= _JOIN_REMAINING_SECONDS
    return "now" if state == "searching" and enough else "later"


@dataclass(frozen=True, slots=True)
class Helper:
    """A helper at work: its search, its number there, and when it started, in seconds."""

    search: str
    number: int
    since: float


class SlotReturns:
    """Choose the helpers of one pool that give their slots back: one for each waiting run.

    The search with the most helpers gives first. Times are in seconds, of any clock.
    """

    def __init__(self) -> None:
        self._helpers: set[Helper] = set()
        self._asked: dict[Helper, float] = {}
        self._left: list[float] = []
        self._waiting: set[float] = set()

    def add(self, helper: Helper) -> None:
        """Add a helper that works."""
        self._helpers.add(helper)

    def remove(self, helper: Helper, now: float) -> None:
        """Remove a helper that has ended, for whatever reason: its slot is free."""
        self._helpers.discard(helper)
        self._asked.pop(helper, None)
        self._left.append(now)

    def leaving(self, waiting: Sequence[float], now: float) -> dict[Helper, float]:
        """Return the helpers that must leave now, with the time at which they were first asked to.

        ``waiting`` are the times at which runs began to wait. Slots that were just given back count. A helper
        that was asked leaves even if the run has got another slot by then.
        """
        started = self._waiting.difference(waiting)
        self._waiting = set(waiting)
        self._left = [moment for moment in self._left if now - moment < SETTLE_SECONDS][len(started) :]
        due = [moment for moment in waiting if now - moment >= NOTICE_SECONDS]
        chosen: dict[Helper, float] = {}
        for helper in list(self._order()) if due else ():
            needed = sum(moment >= helper.since - PASSED_OVER_SECONDS for moment in due)
            if needed > len(self._left) + len(chosen):
                chosen[helper] = self._asked.setdefault(helper, now)
        return chosen

    def _order(self) -> Iterable[Helper]:
        yield from self._asked
        rest = self._helpers - self._asked.keys()
        counts = Counter(helper.search for helper in rest)
        while rest:
            helper = max(rest, key=lambda one: (counts[one.search], one.number, one.since, one.search))
            rest.discard(helper)
            counts[helper.search] -= 1
            yield helper
