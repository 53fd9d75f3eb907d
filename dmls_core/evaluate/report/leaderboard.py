"""The trials by their scores, and where the scores come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import pstdev
from typing import Any

from dmls_core.evaluate.report.parts import Shown, decimals, folded, number, setting, table

LEADERS = 10
"""Trials of the leaderboard that are shown at once."""

MORE = 200
"""Trials of the leaderboard in all."""

COLUMNS = 12
"""Hyperparameters of the leaderboard."""

STATES = ("complete", "pruned", "failed")
"""How a trial may have ended."""


def leaderboard(trials: Sequence[Mapping[str, Any]], metric: str, direction: str) -> str:
    """Return the HTML: the best trial first, pruned trials after completed ones.

    Args:
        trials: those that have a score, none of which repeats another.
        metric: name of the score.
        direction: ``maximize`` or ``minimize``.
    """
    sign = -1 if direction == "maximize" else 1
    ordered = sorted(
        trials, key=lambda trial: (trial.get("state") == "pruned", sign * trial["value"], trial["number"])
    )
    several = len({trial.get("model") for trial in trials}) > 1
    folds = any(len(trial.get("values", ())) > 1 for trial in trials)
    # Several models have different hyperparameters: they stand in one column.
    names = [] if several else list(dict.fromkeys(name for trial in trials for name in trial["params"]))
    names = names[:COLUMNS]
    head = ["rank", "trial", *(["model"] if several else []), metric, *(["spread"] if folds else [])]
    head += ["ended", "seconds", *(["settings"] if several else names)]
    best = abs(ordered[0]["value"]) if ordered else 0.0
    digits = decimals(best) if best >= 0.1 else None
    rows = [
        [
            rank,
            trial["number"],
            *([trial.get("model", "")] if several else []),
            _score(trial["value"], digits),
            *([_spread(trial, digits)] if folds else []),
            trial.get("state", "complete"),
            Shown(f"{trial['seconds']:,.2f}"),
            *([_told(trial)] if several else [_set(trial, name) for name in names]),
        ]
        for rank, trial in enumerate(ordered[:MORE], start=1)
    ]
    kind = "board told" if several else "board"
    html = "<h3>Leaderboard</h3>" + table(head, rows[:LEADERS], kind=kind, marked=0)
    if more := rows[LEADERS:]:
        html += folded(f"{len(more)} more trials", table(head, more, kind=kind))
    return html


def scored_by(
    trials: Sequence[Mapping[str, Any]], *, forest: bool, bags: bool, folds: int, often: bool = False
) -> str:
    """Say which rows the scores of one model's trials come from.

    Args:
        trials: those that have a score.
        forest: whether the model is a forest: where one fold tells enough, these take one.
        bags: whether every tree draws its rows, and can be asked about the others.
        folds: those of the search.
        often: whether trees may draw rows so often that none is left to ask about them.
    """
    if not forest or any(len(trial.get("values", ())) > 1 for trial in trials):
        return f"{folds} folds, in the mean"
    if bags and often:
        return f"out-of-bag rows, or of the first of {folds} folds where trees draw some rows too often"
    if bags:
        return "out-of-bag rows, each answered by the trees that have not seen it"
    return f"the first of {folds} folds"


def _score(value: float, digits: int | None) -> Shown:
    """Write a score with as many decimals as the best one has, so that they stand below each other."""
    return Shown(number(value) if digits is None else f"{value:,.{digits}f}")


def _spread(trial: Mapping[str, Any], digits: int | None) -> Shown | None:
    values = trial.get("values", ())
    return _score(pstdev(values), digits) if len(values) > 1 else None


def _set(trial: Mapping[str, Any], name: str) -> object:
    return setting(trial["params"][name]) if name in trial["params"] else None


def _told(trial: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {setting(value)}" for name, value in trial["params"].items())
