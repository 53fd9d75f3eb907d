"""Figures of the search: history, importance of hyperparameters, configurations and their scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate.report.comparable_trials import LENGTH
from dmls_core.evaluate.report.figures import Figure, bar_figure, label
from dmls_core.html.formats import shorten
from dmls_core.html.leaderboard import score_history

TrialData = Mapping[str, Any]

_MAX_POINTS = 2_000
"""Dots in all slices at most."""

_MAX_LINES = 250
"""Trials in the parallel coordinates at most."""

_MAX_AXES = 10
"""Hyperparameters in the parallel coordinates and the slices at most."""

_MAX_LEVELS = 60
"""Values on an axis of the score map at most."""


def history(trials: Sequence[TrialData], metric: str, direction: str) -> Figure | None:
    """Draw the score of each trial and the best score so far; ``None`` for a single trial."""
    values = score_history(trials, metric, direction)
    if values is None:
        return None
    text = "In the order in which they were suggested"
    if len(values["complete"]) > 1:
        text += "; the line is the best so far"
    if values["pruned"] and values["complete"]:
        text += "; pruned trials are below, as their scores are not comparable"
    return Figure("Score of each trial", f"{text}.", "history", values)


def parallel(
    trials: Sequence[TrialData],
    names: Sequence[str],
    logs: frozenset[str],
    metric: str,
    direction: str,
    *,
    note: str = "",
) -> Figure:
    """Draw each trial as a line across its hyperparameters to its score; better trials are brighter."""
    names = names[:_MAX_AXES]
    ordered = sorted(trials, key=lambda trial: trial["value"], reverse=direction == "maximize")
    if len(ordered) > _MAX_LINES:
        # The best trials are all shown, and a sample of the rest.
        rest = ordered[_MAX_LINES // 2 :]
        ordered = ordered[: _MAX_LINES // 2] + rest[:: math.ceil(len(rest) / (_MAX_LINES // 2))]
    values = {
        "names": names,
        "logs": sorted(logs),
        "metric": metric,
        "best": ordered[0]["number"],
        "trials": [
            {
                "number": trial["number"],
                "value": trial["value"],
                "params": {name: trial["params"][name] for name in names},
            }
            for trial in ordered
        ],
    }
    return Figure(
        "Hyperparameters and scores",
        f"Each line is a trial, from its hyperparameters to its {metric}: the brighter, the better; the best "
        "one is green. Drag along an axis to select trials; click the axis to clear."
        + (f" Trials are compared {note}." if note else ""),
        "parallel",
        values,
        height=360,
        wide=len(names) > 3,
    )


def slices(
    trials: Sequence[TrialData], names: Sequence[str], logs: frozenset[str], metric: str
) -> list[Figure]:
    """Draw, for each hyperparameter, the scores of the trials against its values."""
    drawn = trials[:: max(1, math.ceil(len(trials) / (_MAX_POINTS // max(1, len(names)))))]
    scores = [trial["value"] for trial in drawn]
    return [
        Figure(
            name,
            "",
            "slice",
            {
                "values": [_short_word(trial["params"][name]) for trial in drawn],
                "scores": scores,
                "log": name in logs,
                "metric": metric,
            },
            height=200,
        )
        for name in names[:_MAX_AXES]
    ]


def _short_word(value: object) -> object:
    return shorten(value, 12) if isinstance(value, str) else value


def importances(shares: Mapping[str, float], note: str = "") -> Figure:
    """Draw the importance of each hyperparameter; the note says how trials are compared."""
    return bar_figure(
        "Importance of hyperparameters",
        "Share of the difference between the best trials and all trials that each hyperparameter explains "
        "(PED-ANOVA)." + (f" Trials are compared {note}." if note else ""),
        shares,
        "share",
        percentages=True,
    )


def surface(trial: Mapping[str, Any], metric: str, direction: str, smallest: int = 0) -> Figure | None:
    """Draw the scores of all configurations of one trial: a map, or a line over one axis.

    With more than two axes the first two are drawn (``n_estimators`` and ``max_depth`` if present), with the
    best score over the others in each cell. Sizes below ``smallest`` are left out: a search passes them
    without choosing from them.
    """
    if not trial.get("surface"):
        return None
    axes = {name: list(values) for name, values in trial["surface"]["axes"].items()}
    scores = np.array(trial["surface"]["values"], dtype=np.float64).reshape(
        [len(values) for values in axes.values()]
    )
    if LENGTH in axes:
        allowed = [at for at, size in enumerate(axes[LENGTH]) if size >= smallest]
        scores = np.take(scores, allowed, axis=list(axes).index(LENGTH))
        axes[LENGTH] = [axes[LENGTH][at] for at in allowed]
    ranked = sorted(axes, key=lambda name: (name != LENGTH, name != "max_depth", -len(axes[name])))
    shown = [name for name in ranked if len(axes[name]) > 1][:2]
    if not shown:
        return None
    best = np.nanmax if direction == "maximize" else np.nanmin
    others = tuple(at for at, name in enumerate(axes) if name not in shown)
    flat = best(scores, axis=others) if others else scores
    if [name for name in axes if name in shown] != shown:
        flat = flat.T
    picks = [_thinned(len(axes[name])) for name in shown]
    flat = flat[np.ix_(*picks)]
    levels = [[_level(axes[name][at]) for at in pick] for name, pick in zip(shown, picks, strict=True)]
    title = f"{metric} over {' and '.join(shown)}"
    text = f"All scores are of one model, which trial {trial['number']} fitted once"
    text += "; each is the best over the other hyperparameters." if others else "."
    if len(shown) == 1:
        line = {"columns": levels[0], "scores": _rounded(flat), "x_name": shown[0], "metric": metric}
        return Figure(title, text, "score_line", line)
    argbest = np.nanargmax if direction == "maximize" else np.nanargmin
    star = [int(at) for at in np.unravel_index(int(argbest(flat)), flat.shape)]
    text += " The star is the best score."
    selected = [_level(trial["params"].get(name)) for name in shown]
    ring = None
    if all(value in level for value, level in zip(selected, levels, strict=True)):
        ring = [level.index(value) for value, level in zip(selected, levels, strict=True)]
        if ring != star:
            text += " The ring is the selected configuration: neighboring scores differ by chance only."
    values = {
        "columns": levels[0],
        "rows": levels[1],
        "scores": [_rounded(row) for row in flat.T],
        "x_name": shown[0],
        "y_name": shown[1],
        "metric": metric,
        "maximize": direction == "maximize",
        "star": star,
        "ring": None if ring == star else ring,
    }
    return Figure(title, text, "score_map", values, height=400)


def _thinned(count: int) -> list[int]:
    every = math.ceil(count / _MAX_LEVELS)
    return sorted({*range(0, count, every), count - 1})


def _level(value: object) -> str:
    return label(f"{value:.4g}" if isinstance(value, float) else value)


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values.tolist()]
