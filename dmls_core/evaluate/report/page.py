"""Puts the report together from ``result.json`` and the trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dmls_core.evaluate.holdout import QUANTILES
from dmls_core.evaluate.report.parts import bars, heat_table, number, table

LEADERS = 50
"""Trials shown: the best ones."""

FEATURES = 30
"""Features shown: the most important ones."""

CLASSES = 25
"""Largest number of classes whose confusions are shown."""

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;margin:.5rem 0}th,td{padding:.2rem .7rem;border-bottom:1px solid #d8dee4}
th{text-align:left;font-weight:600}td.n{text-align:right;font-variant-numeric:tabular-nums}
.score{font-size:2rem;font-weight:600}.muted{color:#59636e}svg{display:block}
@media(prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#30363d}
.muted{color:#9198a1}}
"""


def render_report(result: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> str:
    """Return the page.

    Args:
        result: ``result.json``; ``artifacts`` need not be there yet.
        trials: the trials' JSON.
    """
    title = f"{result['team']}/{result['job']}"
    parts = [
        _summary(result),
        _holdout(result),
        _leaderboard(result, trials),
        _features(result),
        _details(result),
    ]
    body = "".join(f"<section>{part}</section>" for part in parts if part)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def _summary(result: Mapping[str, Any]) -> str:
    data = result["data"]
    better = "higher is better" if result["direction"] == "maximize" else "lower is better"
    return (
        f'<p class="score">{escape(result["metric"])} {number(result["score"])}</p>'
        f'<p class="muted">on {data["holdout_rows"]} rows that the search never saw ({better}); '
        f"{number(result['cv_score'])} in the cross-validation of the best trial</p>"
        f"<p>{escape(result['model'])} on the {escape(result['engine'])} engine, "
        f"{result['n_trials']} trials, {data['train_rows']} rows to learn from, "
        f"{len(result['features'])} features, {number(result['seconds']['total'])} s</p>"
    )


def _holdout(result: Mapping[str, Any]) -> str:
    holdout = result["holdout"]
    rows = [[name, value] for name, value in holdout["metrics"].items()]
    page = "<h2>Scores on the holdout</h2>" + table(["metric", "value"], rows)
    confusion, labels = holdout["confusion"], result["labels"]
    if confusion and len(confusion) <= CLASSES:
        page += "<h2>Confusion matrix</h2><p class='muted'>Rows are true classes, columns predicted ones.</p>"
        page += heat_table(labels, confusion)
    if holdout["residuals"]:
        page += "<h2>Residuals</h2><p class='muted'>Predicted minus true value.</p>"
        shares = [f"{share:.0%} of the rows are below" for share in QUANTILES]
        page += table(["", "residual"], list(zip(shares, holdout["residuals"], strict=True)))
    return page


def _leaderboard(result: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> str:
    finished = [trial for trial in trials if trial["value"] is not None]
    sign = -1 if result["direction"] == "maximize" else 1
    finished.sort(key=lambda trial: (sign * trial["value"], trial["number"]))
    names = list(finished[0]["params"])
    rows = [
        [trial["number"], trial["value"], *(trial["params"][name] for name in names), trial["seconds"]]
        for trial in finished[:LEADERS]
    ]
    failed = len(trials) - len(finished)
    note = f"<p class='muted'>{failed} of {len(trials)} trials failed.</p>" if failed else ""
    return "<h2>Trials</h2>" + table(["trial", result["metric"], *names, "seconds"], rows) + note


def _features(result: Mapping[str, Any]) -> str:
    pairs = sorted(result["importances"].items(), key=lambda pair: -pair[1])[:FEATURES]
    return "<h2>Importance of the features</h2>" + bars(pairs)


def _details(result: Mapping[str, Any]) -> str:
    return (
        "<h2>Hyperparameters</h2>"
        + table(["name", "value"], list(result["best_params"].items()))
        + "<h2>Time</h2>"
        + table(["phase", "seconds"], list(result["seconds"].items()))
        + "<h2>Provenance</h2>"
        + table(["", ""], [["run key", result["run_key"]], ["data, SHA-256", result["data"]["hash"]]])
        + table(["library", "version"], list(result["versions"].items()))
    )
