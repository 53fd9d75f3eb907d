"""Allocation of trials to models: successive halving across models.

Trials are allocated in rungs of equal size, one more than the halvings that leave one model. Within a rung,
each remaining model gets the same number of trials. After a rung, the better half of the models goes on,
ranked by their best scores. The last rung belongs to the winner; if its space is exhausted, the rest goes to
the next best model. This is sequential halving (Z. Karnin, T. Koren, O. Somekh: Almost Optimal Exploration in
Multi-Armed Bandits, ICML 2013) with a last rung added, and with a model's best score in place of its mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Better = Callable[[float, float], bool]


@dataclass(frozen=True, slots=True)
class ModelTrials:
    """The trials of one model.

    ``values`` holds the score of each trial that counts, by number; ``None`` for a pruned trial. ``running``
    trials have not ended. A ``closed`` model gets no further trial: its space is exhausted, or its trials
    keep failing.
    """

    model: str
    values: tuple[float | None, ...]
    running: int = 0
    closed: bool = False

    @property
    def taken(self) -> int:
        """Number of trials that have ended or are running."""
        return len(self.values) + self.running


@dataclass(frozen=True, slots=True)
class Turn:
    """The model that gets the next trial, until it has ``until`` trials."""

    model: str
    until: int


def next_turn(entries: Sequence[ModelTrials], n_trials: int, better: Better) -> Turn | Literal["wait", "end"]:
    """Return the model that gets the next trial, or ``end`` if all ``n_trials`` are allocated.

    The result is ``wait`` if the turn depends on running trials. The answer depends on the entries (in the
    order of the spec) alone, so a resumed search continues as an uninterrupted one would.
    """
    rungs = math.ceil(math.log2(len(entries))) + 1
    targets = dict.fromkeys((entry.model for entry in entries), 0)
    left = list(entries)
    for rung in range(rungs):
        spent = sum(_counted(entry, targets[entry.model]) for entry in entries)
        budget = n_trials - spent
        share = budget if len(left) == 1 else budget // (rungs - rung) // len(left)
        for entry in left:
            # Each model has one trial before any is dropped, however few there are.
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


def expected_trials(n_trials: int, taken: int, time_used: float) -> int:
    """Return the number of trials that a search of ``n_trials`` will have, at its speed so far.

    ``taken`` trials have used the share ``time_used`` of its timeout, 0 without one. Rungs of more trials
    than there is time for would leave all the time to the first model.
    """
    if not taken or time_used <= 0:
        return n_trials
    return min(n_trials, max(taken + 1, math.ceil(taken / time_used)))


def _leftover(entries: Sequence[ModelTrials], n_trials: int, better: Better) -> Turn | Literal["end"]:
    """Allocate the trials that the winner cannot use to the best of the other models."""
    room = n_trials - sum(entry.taken for entry in entries)
    counted = {entry.model: len(entry.values) for entry in entries}
    opened = [entry for entry in _ranked(entries, counted, better) if not entry.closed]
    return Turn(opened[0].model, opened[0].taken + room) if room > 0 and opened else "end"


def _counted(entry: ModelTrials, target: int) -> int:
    """Return the spent part of a model's share; other models get the rest of a closed model's share."""
    return min(entry.taken, target) if entry.closed else target


def _ranked(left: Sequence[ModelTrials], counted: dict[str, int], better: Better) -> list[ModelTrials]:
    """Return the models by the best of their first ``counted`` scores; the order of equal ones stays."""
    ranked: list[tuple[float | None, ModelTrials]] = []
    for entry in left:
        best: float | None = None
        for value in entry.values[: counted[entry.model]]:
            if value is not None and (best is None or better(value, best)):
                best = value
        position = len(ranked)
        while position and _beats(best, ranked[position - 1][0], better):
            position -= 1
        ranked.insert(position, (best, entry))
    return [entry for _, entry in ranked]


def _beats(one: float | None, other: float | None, better: Better) -> bool:
    if one is None:
        return False
    return other is None or better(one, other)
