"""The part of the page about the search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from statistics import pstdev
from typing import Any

from dmls_core.evaluate.report import search_figures
from dmls_core.evaluate.report.equal_terms import on_equal_terms
from dmls_core.evaluate.report.figures import Figures
from dmls_core.evaluate.report.importance import hyperparameter_importances
from dmls_core.evaluate.report.parts import brief, cut, folded, paragraph, table
from dmls_core.evaluate.report.surface import surface
from dmls_core.models import CATALOGUE

LEADERS = 10
"""Trials of the leaderboard that are shown at once."""

MORE = 200
"""Trials of the leaderboard in all."""

COLUMNS = 12
"""Hyperparameters of the leaderboard."""

MESSAGES = 5
"""Failed trials whose reason is shown."""

FORESTS = ("random-forest", "extra-trees")

WORDS = {"finished": "finished", "pruned": "given up early", "failed": "failed"}


def render(
    figures: Figures, result: Mapping[str, Any], spec: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]
) -> str:
    """Return the HTML of the section."""
    metric, direction = result["metric"], result["direction"]
    scored = [trial for trial in trials if trial["value"] is not None]
    finished = [trial for trial in scored if trial.get("state") != "pruned"]
    html = paragraph(_states(trials)) + _board(result, finished, scored)
    html += _failures(trials)
    if len(scored) > 1:
        html += search_figures.history(figures, trials, metric, direction)
    models = list(dict.fromkeys(_model(trial, result) for trial in scored))
    for model in models:
        own = [trial for trial in scored if _model(trial, result) == model]
        forests = model in CATALOGUE and CATALOGUE[model].family in FORESTS
        told = _explained(figures, own, _logs(spec, model), metric, direction, forests=forests)
        html += f"<h3>{escape(model)}</h3>{told}" if told and len(models) > 1 else told
    return html


def _model(trial: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    return str(trial.get("model") or result["model"])


def _logs(spec: Mapping[str, Any], model: str) -> frozenset[str]:
    """Return the hyperparameters that are searched by their logarithm."""
    return frozenset(
        name
        for searched in spec["models"]
        if searched["name"] == model
        for name, space in searched["hyperparameters"].items()
        if space.get("log")
    )


def _states(trials: Sequence[Mapping[str, Any]]) -> str:
    counts = Counter(trial.get("state", "finished") for trial in trials)
    told = ", ".join(f"{counts[state]:,} {word}" for state, word in WORDS.items() if counts[state])
    return f"{len(trials):,} {'trials' if len(trials) != 1 else 'trial'}: {told}."


def _board(
    result: Mapping[str, Any], finished: Sequence[Mapping[str, Any]], scored: Sequence[Mapping[str, Any]]
) -> str:
    sign = -1 if result["direction"] == "maximize" else 1
    # What was given up early has the score of that moment: it comes after all that was not.
    ordered = sorted(
        scored, key=lambda trial: (trial.get("state") == "pruned", sign * trial["value"], trial["number"])
    )
    names = list(dict.fromkeys(name for trial in finished for name in trial["params"]))[:COLUMNS]
    several = len({_model(trial, result) for trial in scored}) > 1
    folds = any(len(trial.get("values", ())) > 1 for trial in scored)
    head = ["rank", "trial", *(["model"] if several else []), result["metric"]]
    head += [*(["spread"] if folds else []), *names, "seconds", ""]
    rows = [
        [
            rank,
            trial["number"],
            *([_model(trial, result)] if several else []),
            trial["value"],
            *([pstdev(trial["values"]) if len(trial.get("values", ())) > 1 else None] if folds else []),
            *(_setting(trial["params"].get(name, "")) for name in names),
            trial["seconds"],
            _note(trial),
        ]
        for rank, trial in enumerate(ordered[:MORE], start=1)
    ]
    html = "<h3>Leaderboard</h3>" + table(head, rows[:LEADERS], kind="board", marked=0)
    if more := rows[LEADERS:]:
        html += folded(f"{len(more)} more trials", table(head, more, kind="board"))
    return html


def _setting(value: object) -> object:
    """Return a setting as it is shown: whole numbers stand to the right, the rest is shortened."""
    if isinstance(value, int):
        return value
    return brief(value) if isinstance(value, float) else cut(value, 24)


def _note(trial: Mapping[str, Any]) -> str:
    if trial.get("state") == "pruned":
        return WORDS["pruned"]
    return f"same as {trial['same_as']}" if trial.get("same_as") is not None else ""


def _failures(trials: Sequence[Mapping[str, Any]]) -> str:
    failed = [trial for trial in trials if trial["value"] is None]
    if not failed:
        return ""
    rows = [[trial["number"], trial.get("message", "")] for trial in failed[:MESSAGES]]
    return folded(f"{len(failed)} failed trials", table(["trial", "why"], rows))


def _explained(
    figures: Figures,
    trials: Sequence[Mapping[str, Any]],
    logs: frozenset[str],
    metric: str,
    direction: str,
    *,
    forests: bool,
) -> str:
    """Draw what the trials of one model tell about its hyperparameters."""
    html = ""
    better = max if direction == "maximize" else min
    ended = [trial for trial in trials if trial.get("state") != "pruned"]
    best = better(ended or trials, key=lambda trial: trial["value"])
    drawn = surface(figures, best, metric, direction) if best.get("surface") else ""
    compared = on_equal_terms(trials, direction, forests=forests)
    shown, settings = compared.trials, compared.settings
    names = list(dict.fromkeys(name for trial in shown for name in trial["params"]))
    names = [name for name in names if all(name in trial["params"] for trial in shown)]
    names = [name for name in names if len({repr(trial["params"][name]) for trial in settings}) > 1]
    shares = hyperparameter_importances(settings, names, logs, direction)
    if shares:
        names.sort(key=lambda name: -shares.get(name, 0.0))
    mattered = search_figures.importances(figures, shares, compared.note) if shares else ""
    html += f'<div class="columns">{mattered}{drawn}</div>' if mattered or drawn else ""
    if names and len(shown) > 2:
        html += search_figures.parallel(figures, shown, names, logs, metric, direction, note=compared.note)
        html += "<h3>Score against each setting</h3>"
        html += paragraph(f"{compared.note[0].upper()}{compared.note[1:]}.") if compared.note else ""
        html += search_figures.slices(figures, settings, names, logs, metric)
    return html
