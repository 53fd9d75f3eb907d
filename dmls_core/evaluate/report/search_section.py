"""The report's section on the search: leaderboard, history and the effect of hyperparameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev
from typing import Any

from dmls_core.evaluate.report import search_figures
from dmls_core.evaluate.report.comparable_trials import (
    LENGTH,
    ComparableTrials,
    comparable_trials,
    hyperparameter_importances,
)
from dmls_core.html import TableData
from dmls_core.html.formats import Formatted, counted, decimals, enumerate_texts, number, setting
from dmls_core.html.leaderboard import merge_repeats, rank_trials
from dmls_core.models import CATALOGUE

Trial = Mapping[str, Any]

_LEADERS = 10
"""Trials of the leaderboard that are always visible."""

_MAX_LEADERBOARD = 200
"""Trials of the leaderboard in all."""

_MAX_COLUMNS = 12
"""Hyperparameters of the leaderboard."""

_MAX_MESSAGES = 5
"""Failed trials whose message is shown."""

_STATES = ("complete", "pruned", "failed")

_FORESTS = ("random-forest", "extra-trees")


def content(result: Mapping[str, Any], spec: Mapping[str, Any], trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the variables of ``report/search.html``."""
    metric, direction = result["metric"], result["direction"]
    scored = [trial for trial in trials if trial["value"] is not None]
    failed = [trial for trial in trials if trial["value"] is None]
    models = list(dict.fromkeys(_model(trial, result) for trial in scored))
    board = _leaderboard(merge_repeats(scored), metric, direction)
    messages = [[trial["number"], trial.get("message", "")] for trial in failed[:_MAX_MESSAGES]]
    return {
        "notes": [
            _states_note(trials, result),
            _scoring_note(result, spec, scored, models),
            *other_rounds_note(result, scored),
        ],
        "leaders": board[0],
        "more": board[1],
        "failed": len(failed),
        "messages": TableData(["trial", "message"], messages),
        "history": search_figures.history(trials, metric, direction),
        "models": [_model_content(result, spec, scored, model) for model in models],
    }


def _model(trial: Trial, result: Mapping[str, Any]) -> str:
    return str(trial.get("model") or result["model"])


def _is_forest(model: str) -> bool:
    return model in CATALOGUE and CATALOGUE[model].family in _FORESTS


def _spaces(spec: Mapping[str, Any], model: str) -> Mapping[str, Mapping[str, Any]]:
    return next((entry["hyperparameters"] for entry in spec["models"] if entry["name"] == model), {})


def _states_note(trials: Sequence[Trial], result: Mapping[str, Any]) -> str:
    """Say how the trials ended, and why there are fewer than requested if there are."""
    counts = Counter(trial.get("state", "complete") for trial in trials)
    ended = ", ".join(f"{counts[state]:,} {state}" for state in _STATES if counts[state])
    text = f"{counted(len(trials), 'trial')}: {ended}."
    if repeats := sum(trial.get("same_as") is not None for trial in trials):
        text += f" {repeats:,} of them repeat the configuration of another one: they share its row."
    if shortfall := result.get("shortfall"):
        text += f" {shortfall[0].upper()}{shortfall[1:]}."
    return text


def _scoring_note(
    result: Mapping[str, Any], spec: Mapping[str, Any], scored: Sequence[Trial], models: Sequence[str]
) -> str:
    """Say on which rows the trials were scored, and which scores are comparable."""
    folds = result.get("folds") or spec["search"]["folds"]
    methods: dict[str, list[str]] = {}
    for model in models:
        space = _spaces(spec, model)
        bootstrap = space.get("bootstrap", {"values": ["random-forest" in model]}).get("values")
        rows = space.get("max_samples", {})
        # A share of the rows is at most all of them; a number of rows may be larger.
        many = any(isinstance(value, int) for value in (*rows.get("values", ()), rows.get("max")))
        method = scoring_method(
            [trial for trial in scored if _model(trial, result) == model],
            forest=_is_forest(model),
            out_of_bag=result["engine"] == "cpu" and bootstrap == [True],
            oversampled=many or "balanced" in space.get("class_weight", {}).get("values", ()),
            folds=folds,
            nodes=spec["resources"].get("nodes", 1) > 1,
        )
        methods.setdefault(method, []).append(model)
    parts = [
        method if len(methods) == 1 else f"{method}, for {enumerate_texts(names)}"
        for method, names in methods.items()
    ]
    text = f"Trials are scored on {'; on '.join(parts)}."
    if any(trial.get("state") == "pruned" for trial in scored):
        text += (
            " Pruned trials (gray) keep the score of their last step, with fewer trees, rounds or folds. It "
            "is not comparable: they rank below complete trials, by how far they got and by that score."
        )
    return text


def other_rounds_note(result: Mapping[str, Any], scored: Sequence[Trial]) -> list[str]:
    """Say that boosted trees have other rounds than their trial, if they do (``search/shrinkage.py``)."""
    model, rounds = result["best_params"], 0
    if result.get("ensemble"):  # of several trials
        return []
    for trial in scored:
        if trial["number"] == result.get("best_trial") and not _is_forest(_model(trial, result)):
            rounds = trial["params"].get(LENGTH, 0)
    fitted = model.get(LENGTH, 0)
    # A compacted model has fewer rounds for another reason.
    if not rounds or not fitted or fitted == rounds or (fitted < rounds and result.get("compact")):
        return []
    rate = setting(model["learning_rate"])
    text = f"The model has {fitted} rounds at a learning rate of {rate}"
    if fitted < rounds:
        return [f"{text}, as its trial had, whose {rounds} rounds are counted at a lower rate."]
    slower = f"it learns slower than its trial of {rounds} rounds, and usually predicts a little better"
    return [f"{text}: {slower}."]


def scoring_method(
    trials: Sequence[Trial],
    *,
    forest: bool,
    out_of_bag: bool,
    folds: int,
    oversampled: bool = False,
    nodes: bool = False,
) -> str:
    """Describe the rows on which one model's scored trials are scored.

    A forest may be scored on a single fold. ``out_of_bag``: the trees draw their rows, so that the others can
    score them. ``oversampled``: trees may draw some rows so often that no out-of-bag row is left. ``nodes``:
    several nodes have grown the trees.
    """
    if not forest or any(len(trial.get("values", ())) > 1 for trial in trials):
        return f"{folds} folds (mean)" if folds > 1 else "one fold"
    if nodes:
        return "the rows of other nodes than a tree's, or on one fold if rows have groups or times"
    if out_of_bag and oversampled:
        return f"out-of-bag rows, or on the first of {folds} folds if trees draw some rows too often"
    if out_of_bag:
        return "out-of-bag rows, each by the trees that were not trained on it"
    return f"the first of {folds} folds" if folds > 1 else "one fold"


def _leaderboard(trials: Sequence[Trial], metric: str, direction: str) -> tuple[TableData, TableData | None]:
    """Return the leaders, best first and pruned trials last, and the trials below them."""
    ordered = rank_trials(trials, direction)
    several = len({trial.get("model") for trial in trials}) > 1
    folds = any(len(trial.get("values", ())) > 1 for trial in trials)
    # Several models have different hyperparameters, which share one column.
    names = [] if several else list(dict.fromkeys(name for trial in trials for name in trial["params"]))
    names = names[:_MAX_COLUMNS]
    header = ["rank", "trial", *(["model"] if several else []), metric, *(["spread"] if folds else [])]
    header += ["state", "seconds", *(["hyperparameters"] if several else names)]
    best = abs(ordered[0]["value"]) if ordered else 0.0
    digits = decimals(best) if best >= 0.1 else None
    rows = [
        [
            None if trial.get("state") == "pruned" else rank,
            Formatted(", ".join(map(str, [trial["number"], *trial.get("repeats", ())]))),
            *([trial.get("model", "")] if several else []),
            _score(trial["value"], digits),
            *([_spread(trial, digits)] if folds else []),
            trial.get("state", "complete"),
            Formatted(f"{trial['seconds']:,.2f}"),
            *([_all_settings(trial)] if several else [_one_setting(trial, name) for name in names]),
        ]
        for rank, trial in enumerate(ordered[:_MAX_LEADERBOARD], start=1)
    ]
    style = "board described" if several else "board"
    first = next((at for at, row in enumerate(rows) if row[0] is None), len(rows))
    more = TableData(header, rows[_LEADERS:], style, muted=first - _LEADERS) if rows[_LEADERS:] else None
    return TableData(header, rows[:_LEADERS], style, highlighted=0, muted=first), more


def _score(value: float, digits: int | None) -> Formatted:
    """Return a score with as many decimals as the best one."""
    return Formatted(number(value) if digits is None else f"{value:,.{digits}f}")


def _spread(trial: Trial, digits: int | None) -> Formatted | None:
    values = trial.get("values", ())
    return _score(pstdev(values), digits) if len(values) > 1 else None


def _one_setting(trial: Trial, name: str) -> object:
    return setting(trial["params"][name]) if name in trial["params"] else None


def _all_settings(trial: Trial) -> str:
    return ", ".join(f"{name} {setting(value)}" for name, value in trial["params"].items())


@dataclass(frozen=True, slots=True)
class _Compared:
    """One model's trials on equal terms: searched ``names``, the most important first."""

    trials: ComparableTrials
    names: list[str]
    logs: frozenset[str]
    importances: dict[str, float]


def _compare_trials(
    result: Mapping[str, Any], spec: Mapping[str, Any], trials: Sequence[Trial], model: str
) -> _Compared:
    logs = frozenset(name for name, space in _spaces(spec, model).items() if space.get("log"))
    compared = comparable_trials(trials, result["direction"], forests=_is_forest(model))
    names = list(dict.fromkeys(name for trial in compared.trials for name in trial["params"]))
    names = [name for name in names if all(name in trial["params"] for trial in compared.trials)]
    names = [name for name in names if len({repr(trial["params"][name]) for trial in compared.settings}) > 1]
    shares = hyperparameter_importances(compared.settings, names, logs, result["direction"])
    names.sort(key=lambda name: -shares.get(name, 0.0))
    return _Compared(compared, names, logs, shares)


def search_insight(
    result: Mapping[str, Any], spec: Mapping[str, Any], trials: Sequence[Trial]
) -> list[dict[str, Any]]:
    """Return, for each model, the importance of its hyperparameters and its trials on equal terms."""
    scored = [trial for trial in trials if trial["value"] is not None]
    insights = []
    for model in dict.fromkeys(_model(trial, result) for trial in scored):
        model_trials = [trial for trial in scored if _model(trial, result) == model]
        compared = _compare_trials(result, spec, model_trials, model)
        descending = result["direction"] == "maximize"
        ordered = sorted(compared.trials.trials, key=lambda trial: trial["value"], reverse=descending)
        ranked = [
            {"number": trial["number"], "value": trial["value"], "params": dict(trial["params"])}
            for trial in ordered[:_MAX_LEADERBOARD]
        ]
        insights.append(
            {
                "model": model,
                "note": compared.trials.note,
                "names": compared.names,
                "logs": sorted(compared.logs),
                "importances": compared.importances,
                "trials": ranked,
            }
        )
    return insights


def _model_content(
    result: Mapping[str, Any], spec: Mapping[str, Any], scored: Sequence[Trial], model: str
) -> dict[str, Any]:
    metric, direction, spaces = result["metric"], result["direction"], _spaces(spec, model)
    trials = [trial for trial in scored if _model(trial, result) == model]
    better = max if direction == "maximize" else min
    complete = [trial for trial in trials if trial.get("state") != "pruned"]
    best = better(complete or trials, key=lambda trial: trial["value"])
    smallest = spaces.get(LENGTH, {}).get("min", 0)
    surface = search_figures.surface(best, metric, direction, smallest)
    compared = _compare_trials(result, spec, trials, model)
    shown, settings, note = compared.trials.trials, compared.trials.settings, compared.trials.note
    names, logs, shares = compared.names, compared.logs, compared.importances
    overview = [search_figures.importances(shares, note)] if shares else []
    drawn = bool(names) and len(shown) > 2
    return {
        "name": model,
        "overview": [*overview, *([surface] if surface else [])],
        "note": note,
        "parallel": search_figures.parallel(shown, names, logs, metric, direction, note=note)
        if drawn
        else None,
        "slices": search_figures.slices(settings, names, logs, metric) if drawn else [],
    }
