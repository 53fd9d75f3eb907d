"""The further rungs: losers are dropped, the winner grows on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from dmls_core.search.forest import halving
from dmls_core.search.forest.configuration import Candidate
from dmls_core.search.forest.first import FirstRung, repeat
from dmls_core.search.forest.space import PartitionedSpace
from dmls_core.search.task import SearchTask, Step
from dmls_core.search.trial import Trial

GROWN_BYTES = 2 * 2**30
"""Memory for the forests that grow on. Of many trials on many rows those for which there is no room are grown
again, rung by rung."""


def narrow(
    task: SearchTask,
    layout: PartitionedSpace,
    first: FirstRung,
    trials: list[Trial],
    *,
    on_trial: Callable[[Trial], None],
    on_step: Callable[[Step], None],
    late: Callable[[], bool],
    stop: Callable[[], bool],
) -> Candidate | None:
    """Drop configurations rung by rung and grow the last one to the end.

    Args:
        task: what is searched.
        layout: its space.
        first: the first rung, which has run.
        trials: its trials; those that go further are replaced.
        on_trial: told of each trial that goes further, once it ends.
        on_step: told how far those that are left have come.
        late: whether the time is up: the best one grows to the next size of the space alone.
        stop: whether to end without a result.

    Returns:
        The winner; ``None`` if ``stop`` said so, or if no trial has a score.
    """
    sign = 1 if task.direction == "maximize" else -1
    fresh = [trial for trial in trials if trial.state != "failed" and trial.same_as is None]
    fresh.sort(key=lambda trial: (-sign * trial.intermediate_values[0], trial.number))
    if not fresh:
        return None

    def end(candidate: Candidate, state: Literal["complete", "pruned"], why: str = "") -> None:
        found = candidate.trial(state, why)
        repeats = [trial.number for trial in trials if trial.same_as == candidate.number]
        for number in (*repeats, candidate.number):
            asked = {name: trials[number].params[name] for name in layout.structural.searched}
            trials[number] = repeat(found, number, asked) if number in repeats else found
            on_trial(trials[number])

    alive = _take(first, fresh[: 1 if late() else halving.room(len(fresh))], sign)
    last = layout.sizes[-1]
    while len(alive) > 1:
        trees = halving.next_size(layout.sizes, alive[0].trees)
        scores, parts = [], []
        for candidate in alive:
            if stop():
                return None
            candidate.grow(trees)
            scores.append(sign * candidate.foretold())
            parts.append(sign * candidate.foretold_without())
            _spare(alive, sign)
        kept, sure = halving.remaining(scores, parts)
        if trees == last or late():
            kept = kept[:1]
        winner = alive[kept[0]].number
        for position in sorted(set(range(len(alive))) - set(kept)):
            why = f"given up after {trees} trees: {sure[position]:.0%} sure that trial {winner} is better"
            end(alive[position], "pruned", why)
        alive = [alive[position] for position in kept]
        on_step(_step(alive, layout))
    if not _finish(alive[0], layout, on_step, late, stop):
        return None
    on_step(Step(0.0, 1, alive[0].trees))
    # Told last, and the only finished one: with it the search has ended, whenever it is started again.
    end(alive[0], "complete")
    return alive[0]


def _take(first: FirstRung, trials: Sequence[Trial], sign: int) -> list[Candidate]:
    """Return the candidates of the trials that go on from the first rung, which keeps none."""
    taken: list[Candidate] = []
    for trial in trials:
        taken.append(first.candidate(trial))
        _spare(taken, sign)
    first.held.clear()
    return taken


def _spare(candidates: Sequence[Candidate], sign: int) -> None:
    """Let go of the forests for which there is no room: those of the worst candidates, never the best one's.

    Args:
        candidates: all have grown.
        sign: 1 where more is better, else -1.
    """
    best, *others = sorted(candidates, key=lambda one: (-sign * one.intermediate_values[-1], one.number))
    size = best.nbytes
    for one in others:
        size += one.nbytes
        if size > GROWN_BYTES:
            one.let_go()


def _finish(
    candidate: Candidate,
    layout: PartitionedSpace,
    on_step: Callable[[Step], None],
    late: Callable[[], bool],
    stop: Callable[[], bool],
) -> bool:
    """Grow until more trees would not tell, or to the next size if it is late; say if that was not stopped.

    Args:
        candidate: the winner.
        layout: its space.
        on_step: told after each size.
        late: whether the time is up.
        stop: whether to end without a result.
    """
    for size in (size for size in layout.sizes if size > candidate.trees):
        if stop():
            return False
        if candidate.trees in layout.sizes and (late() or candidate.converged()):
            break
        candidate.grow(size)
        on_step(_step([candidate], layout))
    return True


def _step(alive: Sequence[Candidate], layout: PartitionedSpace) -> Step:
    trees = alive[0].trees
    each = max(candidate.seconds / trees for candidate in alive)
    ahead = halving.trees_ahead(len(alive), trees, layout.sizes)
    return Step(ahead * each, len(alive), trees, alive[0].progress()[trees])
