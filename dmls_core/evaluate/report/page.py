"""Puts the report together from ``result.json``, spec, trials and what was found out about the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from dmls_core.evaluate.insight import Insight
from dmls_core.evaluate.report import comparison_section, model_section, search_section
from dmls_core.evaluate.report.figures import Figures, style
from dmls_core.evaluate.report.parts import Shown, cut, facts, folded, number, paragraph, setting, table

FEATURES = 400
"""Characters of the names of features that are listed."""

SECTIONS = {
    "asked": "What was asked",
    "search": "The search",
    "model": "The model on the holdout",
    "comparison": "Against the champion",
    "features": "The features",
    "details": "Details",
}


def render_report(
    result: Mapping[str, Any],
    spec: Mapping[str, Any],
    trials: Sequence[Mapping[str, Any]],
    insight: Insight,
) -> str:
    """Return the page: one file that needs nothing from the network and sends nothing there.

    Args:
        result: ``result.json``; ``artifacts`` need not be there yet.
        spec: the accepted spec's JSON.
        trials: the trials' JSON, by number.
        insight: what was found out about the model.
    """
    figures, found = Figures(), result.get("comparison")
    contents = {
        "asked": _asked(spec, result),
        "search": search_section.render(figures, result, spec, trials),
        "model": model_section.render(figures, result, insight, spec["columns"]["target"]),
        **({"comparison": comparison_section.render(figures, found)} if found else {}),
        "features": model_section.render_features(figures, result, insight),
        "details": _details(result),
    }
    title = f"{result['team']}/{result['job']}"
    links = "".join(f'<a href="#{name}">{SECTIONS[name]}</a>' for name in contents)
    sections = "".join(
        f'<section id="{name}"><h2>{SECTIONS[name]}</h2>{content}</section>'
        for name, content in contents.items()
    )
    scripts, hashes = figures.scripts()
    allowed = " ".join(hashes) or "'none'"
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{style()}</style></head><body><main>"
        f'<header><h1>{escape(title)}</h1><nav aria-label="Sections">{links}</nav>'
        "<noscript><p>The figures need scripts; everything else on this page does not.</p></noscript>"
        f"</header>{_summary(result, insight)}{_warnings(result)}{sections}</main>{scripts}</body></html>\n"
    )


def _summary(result: Mapping[str, Any], insight: Insight) -> str:
    data, better = result["data"], "higher" if result["direction"] == "maximize" else "lower"
    lines = [f"on {data['holdout_rows']:,} rows that the search never saw; {better} is better."]
    if insight.interval is not None:
        low, high = insight.interval
        lines.append(
            f"95 % confidence interval {number(low)} to {number(high)} (bootstrap)."
            if low < high
            else "All of them were answered right: they are too few to tell how far the score may be off."
        )
    if insight.baseline is not None:
        lines.append(f"A model that knows no feature has {number(insight.baseline)}.")
    score = (
        f'<div><div class="score"><small>{escape(result["metric"])}</small>{number(result["score"])}</div>'
        f'<p class="muted">{" ".join(lines)}</p></div>'
    )
    known = [
        ("model", result["model"]),
        ("engine", result["engine"]),
        ("in the search", number(result["cv_score"]) if result["cv_score"] is not None else "unknown"),
        ("trials", f"{result['n_trials']:,}"),
        ("rows to learn from", f"{data['train_rows']:,}"),
        ("features", f"{len(result['features']):,}"),
        *([("classes", f"{len(result['labels']):,}")] if result["labels"] else []),
        ("time", f"{result['seconds']['total']:.1f} s"),
        *([("finished", result["finished"][:16].replace("T", " ") + " UTC")] if "finished" in result else []),
    ]
    return f'<section class="summary">{score}{facts(known)}</section>'


def _warnings(result: Mapping[str, Any]) -> str:
    found = result.get("warnings") or ()
    if not found:
        return ""
    items = "".join(f"<li>{escape(message)}</li>" for message in found)
    return f'<section class="warnings"><h2>Before you rely on it</h2><ul>{items}</ul></section>'


def _asked(spec: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    search, evaluation = spec["search"], spec["evaluation"]
    rows: list[tuple[str, str]] = [
        ("to predict", spec["columns"]["target"]),
        ("from", _listed(result["features"])),
        ("trials", f"{spec['n_trials']:,}"),
        ("search", _told(search)),
        ("held out", f"{evaluation['holdout']:.0%}, {evaluation['split']}"),
        ("deployment", _told(spec["deploy"])),
    ]
    html = f"<div>{table(['', ''], rows)}</div>"
    for model in spec["models"]:
        spaces = model["hyperparameters"]
        searched = [[name, _space(space)] for name, space in spaces.items() if not _is_fixed(space)]
        fixed = [[name, setting(space["values"][0])] for name, space in spaces.items() if _is_fixed(space)]
        html += f"<div><h3>{escape(model['name'])}</h3>"
        html += (
            table(["searched", "among"], searched) if searched else "<p>No hyperparameter was searched.</p>"
        )
        html += folded("Fixed hyperparameters", table(["fixed", "at"], fixed)) if fixed else ""
        html += "</div>"
    return f'<div class="columns">{html}</div>'


def _listed(names: Sequence[str]) -> str:
    """Name as many as there is room for."""
    shown = list(map(cut, names))
    while len(shown) > 1 and sum(map(len, shown)) > FEATURES:
        shown.pop()
    more = f" and {len(names) - len(shown):,} more" if len(shown) < len(names) else ""
    return ", ".join(shown) + more


def _told(keys: Mapping[str, Any]) -> str:
    """Write the keys of a table that have a value, those of tables within it too."""
    return ", ".join(
        f"{name} ({_told(value)})" if isinstance(value, Mapping) else f"{name} {setting(value)}"
        for name, value in keys.items()
        if value is not None
    )


def _is_fixed(space: Mapping[str, Any]) -> bool:
    return len(space.get("values", ())) == 1


def _space(space: Mapping[str, Any]) -> str:
    if "values" in space:
        return ", ".join(map(str, space["values"]))
    text = f"{space['min']} to {space['max']}"
    if space.get("step") is not None:
        text += f" by {space['step']}"
    return text + (", by its logarithm" if space.get("log") else "")


def _size(size: Mapping[str, Any]) -> str:
    """Say how large the model is, and which depth would do."""
    text = (
        f"The checkpoint has {size['bytes'] / 1e6:,.1f} MB: {size['trees']:,} trees with {size['nodes']:,} "
        f"nodes, up to {size['depth']} deep."
    )
    if enough := size["enough"]:
        text += (
            f" Cut at depth {enough['max_depth']} they have {enough['nodes']:,} nodes, about "
            f"{enough['bytes'] / 1e6:,.1f} MB, and lose nothing that can be measured: "
            f"{number(enough['score'])} instead of {number(enough['whole_score'])} on {enough['rows']:,} "
            f"rows held out, with {enough['trees']:,} trees. Give max_depth a max of {enough['max_depth']} "
            "to have it so."
        )
    return text


def _details(result: Mapping[str, Any]) -> str:
    provenance = [["run", result["run_key"]], ["data, SHA-256", result["data"]["hash"]]]
    provenance += [["spec, SHA-256", result["spec_sha256"]]] if "spec_sha256" in result else []
    parameters = [[name, setting(value)] for name, value in result["best_params"].items()]
    seconds = [[name, Shown(f"{value:,.2f}")] for name, value in result["seconds"].items()]
    beside = "The data is validated beside the other phases." if "validate" in result["seconds"] else ""
    size = f"<h3>Size</h3>{paragraph(_size(result['size']), '')}" if "size" in result else ""
    left = f"<h3>Hyperparameters in effect</h3>{table(['name', 'value'], parameters)}{size}"
    right = (
        f"<h3>Time</h3>{table(['phase', 'seconds'], seconds)}{paragraph(beside) if beside else ''}"
        f"<h3>Provenance</h3>{table(['', ''], provenance)}"
        f"<h3>Versions</h3>{table(['library', 'version'], list(result['versions'].items()))}"
    )
    return f'<div class="columns"><div>{left}</div><div>{right}</div></div>'
