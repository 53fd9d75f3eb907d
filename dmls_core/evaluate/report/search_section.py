"""The part of the page about the search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dmls_core.evaluate.report import search_figures
from dmls_core.evaluate.report.equal_terms import LENGTH, on_equal_terms
from dmls_core.evaluate.report.figures import Figures
from dmls_core.evaluate.report.importance import hyperparameter_importances
from dmls_core.evaluate.report.leaderboard import STATES, leaderboard, scored_by
from dmls_core.evaluate.report.parts import folded, paragraph, table
from dmls_core.evaluate.report.surface import surface
from dmls_core.models import CATALOGUE

MESSAGES = 5
"""Failed trials whose reason is shown."""

FORESTS = ("random-forest", "extra-trees")


def render(
    figures: Figures, result: Mapping[str, Any], spec: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]
) -> str:
    """Return the HTML of the section."""
    metric, direction = result["metric"], result["direction"]
    scored = [trial for trial in trials if trial["value"] is not None]
    models = list(dict.fromkeys(_model(trial, result) for trial in scored))
    html = paragraph(_states(trials, spec)) + paragraph(_scoring(result, spec, scored, models))
    html += leaderboard([trial for trial in scored if trial.get("same_as") is None], metric, direction)
    html += _failures(trials)
    if len(scored) > 1:
        html += search_figures.history(figures, trials, metric, direction)
    for model in models:
        own = [trial for trial in scored if _model(trial, result) == model]
        spaces = _spaces(spec, model)
        logs = frozenset(name for name, space in spaces.items() if space.get("log"))
        least = spaces.get(LENGTH, {}).get("min", 0)
        told = _explained(figures, own, logs, metric, direction, forests=_is_forest(model), least=least)
        html += f"<h3>{escape(model)}</h3>{told}" if told and len(models) > 1 else told
    return html


def _model(trial: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    return str(trial.get("model") or result["model"])


def _is_forest(model: str) -> bool:
    return model in CATALOGUE and CATALOGUE[model].family in FORESTS


def _spaces(spec: Mapping[str, Any], model: str) -> Mapping[str, Mapping[str, Any]]:
    """Return what was searched of a model, by its name."""
    return next((one["hyperparameters"] for one in spec["models"] if one["name"] == model), {})


def _states(trials: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]) -> str:
    """Say how the trials ended, and what ended the search where trials are missing."""
    counts = Counter(trial.get("state", "complete") for trial in trials)
    ended = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])
    text = f"{len(trials):,} {'trials' if len(trials) != 1 else 'trial'}: {ended}."
    if repeats := sum(trial.get("same_as") is not None for trial in trials):
        text += f" {repeats:,} of them repeat another, cost nothing and are not listed."
    if len(trials) - counts["failed"] < spec["n_trials"]:
        rules = [name for name in ("timeout", "early_stop") if spec["search"].get(name) is not None]
        reason = f": the search was ended by {' or '.join(rules)}" if rules else ""
        text += f" {spec['n_trials']:,} were asked for{reason}."
    return text


def _scoring(
    result: Mapping[str, Any],
    spec: Mapping[str, Any],
    scored: Sequence[Mapping[str, Any]],
    models: Sequence[str],
) -> str:
    """Say what the scores are scores of, and which of them compare."""
    folds = result.get("folds") or spec["search"]["folds"]
    told: dict[str, list[str]] = {}
    for model in models:
        space = _spaces(spec, model)
        drawn = space.get("bootstrap", {"values": ["random-forest" in model]}).get("values")
        rows = space.get("max_samples", {})
        # A share of the rows is no more than there are; a number of rows may be.
        many = any(isinstance(value, int) for value in (*rows.get("values", ()), rows.get("max")))
        often = many or "balanced" in space.get("class_weight", {}).get("values", ())
        way = scored_by(
            [trial for trial in scored if _model(trial, result) == model],
            forest=_is_forest(model),
            bags=result["engine"] == "cpu" and drawn == [True],
            often=often,
            folds=folds,
        )
        told.setdefault(way, []).append(model)
    ways = [way if len(told) == 1 else f"{way}, for {' and '.join(names)}" for way, names in told.items()]
    text = f"Scores are of {'; of '.join(ways)}."
    if any(trial.get("state") == "pruned" for trial in scored):
        text += (
            " Pruned trials keep the score of their last step, of fewer trees, rounds or folds. It "
            "is not comparable, and they rank below completed trials."
        )
    return text


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
    least: int,
) -> str:
    """Draw what the trials of one model tell about its hyperparameters; ``least`` trees were asked for."""
    html = ""
    better = max if direction == "maximize" else min
    ended = [trial for trial in trials if trial.get("state") != "pruned"]
    best = better(ended or trials, key=lambda trial: trial["value"])
    drawn = surface(figures, best, metric, direction, least) if best.get("surface") else ""
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
