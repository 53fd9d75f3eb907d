"""Which model the next trial is for: successive halving across models.

The trials are shared out in rungs, of which there are one more than halvings are needed to leave one model:
as many trials for each rung, and within a rung as many for each model that is left. After a rung the better
half of its models, by the best score that each has, goes on; the last rung is the winner's alone, and what
it has no use for, its space being exhausted, is the next best one's. This is
sequential halving (Z. Karnin, T. Koren, O. Somekh: Almost Optimal Exploration in Multi-Armed Bandits, ICML
2013) with a last rung added, and with a model judged by its best trial rather than by its mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Better = Callable[[float, float], bool]


@dataclass(frozen=True, slots=True)
class Entry:
    """How one model stands.

    Attributes:
        model: its name.
        values: the score of each trial that counts, in the order of their numbers; ``None`` where it was
            given up early.
        running: trials that have not ended.
        closed: whether it can have no further trial: its space is exhausted, or its trials keep failing.
    """

    model: str
    values: tuple[float | None, ...]
    running: int = 0
    closed: bool = False

    @property
    def taken(self) -> int:
        """Trials that are done or under way."""
        return len(self.values) + self.running


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is.

    Attributes:
        model: its name.
        until: how many trials it is to have in all before it is another's turn.
    """

    model: str
    until: int


def next_turn(entries: Sequence[Entry], n_trials: int, better: Better) -> Turn | Literal["wait", "end"]:
    """Say which model the next trial is for.

    The answer follows from the entries alone, so a search that is resumed goes on as it would have.

    Args:
        entries: the models, in the order of the spec.
        n_trials: trials that all may have together.
        better: whether its first score beats its second.

    Returns:
        Whose turn it is; ``wait`` where it depends on trials under way; ``end`` where all trials are taken.
    """
    rungs = math.ceil(math.log2(len(entries))) + 1
    targets = dict.fromkeys((entry.model for entry in entries), 0)
    left = list(entries)
    for rung in range(rungs):
        spent = sum(_counted(entry, targets[entry.model]) for entry in entries)
        budget = n_trials - spent
        share = budget if len(left) == 1 else budget // (rungs - rung) // len(left)
        for entry in left:
            # However few trials there are, each model has one before any is dropped.
            targets[entry.model] += max(share, 1) if rung == 0 else share
        for entry in left:
            if not entry.closed and entry.taken < targets[entry.model]:
                room = n_trials - sum(one.taken for one in entries)
                until = min(targets[entry.model], entry.taken + room)
                return Turn(entry.model, until) if room > 0 else "end"
        if len(left) == 1:
            break
        if any(entry.running and len(entry.values) < targets[entry.model] for entry in left):
            return "wait"
        left = _ranked(left, targets, better)[: math.ceil(len(left) / 2)]
    return _leftover(entries, n_trials, better)


def _leftover(entries: Sequence[Entry], n_trials: int, better: Better) -> Turn | Literal["end"]:
    """Give what the winner has no use for to the best of the others that has."""
    room = n_trials - sum(entry.taken for entry in entries)
    counted = {entry.model: len(entry.values) for entry in entries}
    opened = [entry for entry in _ranked(entries, counted, better) if not entry.closed]
    return Turn(opened[0].model, opened[0].taken + room) if room > 0 and opened else "end"


def _counted(entry: Entry, target: int) -> int:
    """Return what of a model's share is spent; what a closed one leaves, others may have."""
    return min(entry.taken, target) if entry.closed else target


def _ranked(left: Sequence[Entry], counted: dict[str, int], better: Better) -> list[Entry]:
    """Return models by the best of their first ``counted`` scores; of equals, the first first."""
    ranked: list[tuple[float | None, Entry]] = []
    for entry in left:
        best: float | None = None
        for value in entry.values[: counted[entry.model]]:
            if value is not None and (best is None or better(value, best)):
                best = value
        place = len(ranked)
        while place and _beats(best, ranked[place - 1][0], better):
            place -= 1
        ranked.insert(place, (best, entry))
    return [entry for _, entry in ranked]


def _beats(one: float | None, other: float | None, better: Better) -> bool:
    if one is None:
        return False
    return other is None or better(one, other)
