"""Render the report from ``result.json``, the spec, the trials and the model's diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_core.data.split.description import describe_split
from dmls_core.evaluate.diagnostics import Diagnostics
from dmls_core.evaluate.report import model_section, search_section
from dmls_core.evaluate.report.figures import Figure
from dmls_core.html import TableData, chart_scripts, render_page
from dmls_core.html.formats import Formatted, describe_ensemble, number, setting, shorten

_FEATURES_LENGTH = 400
"""Characters of all listed feature names."""


def render_report(
    result: Mapping[str, Any],
    spec: Mapping[str, Any],
    trials: Sequence[Mapping[str, Any]],
    diagnostics: Diagnostics,
) -> str:
    """Return the report: one HTML file that loads nothing and sends nothing.

    ``artifacts`` may still be missing in ``result``; the trials are ordered by number.
    """
    comparison = result.get("comparison")
    return render_page(
        "report.html",
        f"{result['team']}/{result['job']}",
        result=result,
        diagnostics=diagnostics,
        facts=_facts(result),
        warnings=result.get("warnings") or (),
        asked=_asked(spec, result),
        search=search_section.content(result, spec, trials),
        model=model_section.content(result, diagnostics, spec["columns"]["target"]),
        comparison=_comparison(comparison) if comparison else None,
        features=model_section.feature_content(result, diagnostics),
        details=_details(result),
        scripts=chart_scripts(),
    )


def _facts(result: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [
        ("model", result["model"]),
        *([("ensemble", describe_ensemble(result["ensemble"]))] if result.get("ensemble") else []),
        ("engine", result["engine"]),
        ("score in the search", number(result["cv_score"]) if result["cv_score"] is not None else "unknown"),
        ("trials", f"{result['n_trials']:,}"),
        ("training rows", f"{result['data']['train_rows']:,}"),
        ("features", f"{len(result['features']):,}"),
        *([("classes", f"{len(result['labels']):,}")] if result["labels"] else []),
        ("time", f"{result['seconds']['total']:.1f} s"),
        *([("finished", result["finished"][:16].replace("T", " ") + " UTC")] if "finished" in result else []),
    ]


def _asked(spec: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of what the spec asked for, and of each model's search space."""
    rows = [
        ("target", spec["columns"]["target"]),
        ("features", _listed(result["features"])),
        ("trials", f"{spec['n_trials']:,}"),
        ("search", _inline(spec["search"])),
        ("holdout", describe_split(result["data"].get("split") or spec["evaluation"])),
        ("deployment", _inline(spec["deploy"])),
    ]
    models = []
    for model in spec["models"]:
        spaces = model["hyperparameters"]
        searched = [[name, _space(space)] for name, space in spaces.items() if not _is_fixed(space)]
        fixed = [[name, setting(space["values"][0])] for name, space in spaces.items() if _is_fixed(space)]
        models.append(
            {
                "name": model["name"],
                "searched": TableData(["hyperparameter", "search space"], searched) if searched else None,
                "fixed": TableData(["hyperparameter", "value"], fixed) if fixed else None,
            }
        )
    return {"table": TableData(["", ""], rows), "models": models}


def _listed(names: Sequence[str]) -> str:
    shown = list(map(shorten, names))
    while len(shown) > 1 and sum(map(len, shown)) > _FEATURES_LENGTH:
        shown.pop()
    more = f" and {len(names) - len(shown):,} more" if len(shown) < len(names) else ""
    return ", ".join(shown) + more


def _inline(keys: Mapping[str, Any]) -> str:
    """Return the keys of a table that have a value, and those of nested tables."""
    return ", ".join(
        f"{name} ({_inline(value)})" if isinstance(value, Mapping) else f"{name} {setting(value)}"
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
        text += f", step {space['step']}"
    return text + (" (log scale)" if space.get("log") else "")


def _comparison(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section on champion and challenger: ``comparison`` of ``result.json``, table and figure."""
    if not comparison["comparable"]:
        return {"comparison": comparison, "table": None, "figure": None}
    metric, margin = comparison["metric"], comparison["min_improvement"]
    rows = [
        [f"champion, version {comparison['champion_version']}: {metric}", comparison["champion_score"]],
        [f"challenger (this model): {metric}", comparison["challenger_score"]],
        ["rows", comparison["rows"]],
    ]
    if comparison["conclusive"]:
        low, high = comparison["interval"]
        rows += [
            ["improvement", comparison["difference"]],
            ["95 % interval, lower end", low],
            ["95 % interval, upper end", high],
            [f"probability of an improvement of more than {margin:g}", comparison["probability"]],
        ]
    return {
        "comparison": comparison,
        "table": TableData(["", "value"], rows),
        "figure": _improvement_figure(comparison) if comparison["conclusive"] else None,
    }


def _improvement_figure(comparison: Mapping[str, Any]) -> Figure:
    values = {
        "difference": comparison["difference"],
        "interval": comparison["interval"],
        "margin": comparison["min_improvement"],
        "metric": comparison["metric"],
    }
    return Figure(
        "Improvement over the champion",
        "The point is the difference on the same rows, the bar its 95 % interval (paired bootstrap). The "
        "dashed line is [deploy] min_improvement.",
        "improvement",
        values,
        height=160,
    )


def _size(size: Mapping[str, Any]) -> str:
    """Describe the size of the model, and a smaller depth that loses nothing."""
    text = (
        f"The checkpoint has {size['bytes'] / 1e6:,.1f} MB: {size['trees']:,} trees with {size['nodes']:,} "
        f"nodes and a depth of up to {size['depth']}."
    )
    if enough := size["enough"]:
        text += (
            f" With max_depth = {enough['max_depth']} the trees have {enough['nodes']:,} nodes, about "
            f"{enough['bytes'] / 1e6:,.1f} MB, without a measurable loss: {number(enough['score'])} instead "
            f"of {number(enough['whole_score'])} on {enough['rows']:,} held-out rows with "
            f"{enough['trees']:,} trees. Set the max of max_depth to {enough['max_depth']} to get this."
        )
    return text


def _details(result: Mapping[str, Any]) -> dict[str, Any]:
    provenance = [["run", result["run_key"]], ["data, SHA-256", result["data"]["hash"]]]
    provenance += [["spec, SHA-256", result["spec_sha256"]]] if "spec_sha256" in result else []
    parameters = [[name, setting(value)] for name, value in result["best_params"].items()]
    seconds = [[name, Formatted(f"{value:,.2f}")] for name, value in result["seconds"].items()]
    return {
        "parameters": TableData(["name", "value"], parameters),
        "size": _size(result["size"]) if "size" in result else "",
        "seconds": TableData(["phase", "seconds"], seconds),
        "validated": "validate" in result["seconds"],
        "provenance": TableData(["", ""], provenance),
        "versions": TableData(["library", "version"], list(result["versions"].items())),
    }
