"""The model card: one page on a model, for those who call it. Whatever comes from a user is escaped."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from dmls_core.data.encoder import CategoryFeature, Encoder, NumberFeature
from dmls_core.serving.model_config import MAX_BATCH_SIZE
from dmls_core.serving.tensors import forest_request, table_request

CARD = "card.html"
"""The card's name in a run's ``model/`` folder."""

SHOWN = 30
"""Categories and labels that are listed."""

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#222;background:#fff}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.3rem .6rem;
border-bottom:1px solid #ddd;overflow-wrap:anywhere}pre{background:#f4f4f4;padding:.8rem;overflow:auto}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}pre{background:#262626}
td,th{border-color:#444}a{color:#8bf}}
"""
_LIMITS = (
    "Outside of the ranges above a forest answers as it does at their edge: it does not extrapolate.",
    "A category that is not listed is answered, as one that the training never saw.",
    "Numbers are 32-bit floating point numbers, as they were in training.",
    f"One request carries {MAX_BATCH_SIZE:,} rows at most.",
    "The metrics were measured on the rows held out, and hold for data like those.",
)


def write_card(folder: Path, result: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    """Write the card into a run's ``model/`` folder.

    Args:
        folder: holds ``encoder.json``, ``golden.json`` and ``model.json``.
        result: ``result.json``; ``seconds`` and ``artifacts`` need not be there yet.
        spec: the accepted spec's JSON.
    """
    encoder, golden, about = (
        json.loads((folder / f"{name}.json").read_bytes()) for name in ("encoder", "golden", "model")
    )
    page = render_card(result, spec, Encoder.from_json(encoder), golden, about.get("ranges", {}))
    (folder / CARD).write_text(page, encoding="utf-8")


def card_of_deployed(page: str, facts: Mapping[str, object]) -> str:
    """Return a card with a section on how the model is served.

    Args:
        page: what ``render_card`` returned.
        facts: what to say, by name.
    """
    end = "</body></html>"
    return f"{page.rpartition(end)[0]}<h2>Serving</h2>{_table((), facts.items())}{end}\n"


def render_card(
    result: Mapping[str, Any],
    spec: Mapping[str, Any],
    encoder: Encoder,
    golden: Mapping[str, Any],
    ranges: Mapping[str, Sequence[float]],
) -> str:
    """Return the card: one HTML page that needs nothing from the network and runs nothing.

    Args:
        result: ``result.json``.
        spec: the accepted spec's JSON.
        encoder: the model's.
        golden: ``golden.json``, of which the first row is the example.
        ranges: smallest and largest value in the training rows of each number that has one.
    """
    model = f"{result['team']}.{result['job']}"
    owner = spec.get("owner") or {}
    whom = " ".join(filter(None, (owner.get("name"), f"<{owner['email']}>" if owner.get("email") else "")))
    data = result["data"]
    rows = f"{data['rows']:,}"
    if "train_rows" in data:
        rows += f": {data['train_rows']:,} for training, {data['holdout_rows']:,} held out"
    facts = {
        "Model": f"{result['model']} ({result['engine']})",
        "Predicts": encoder.target.name,
        "Labels": _listed(encoder.target.labels) if encoder.target.labels else "a number",
        "Owner": whom or "not named",
        "Trained": result.get("finished", ""),
        "Run": result["run_key"],
        "Rows": rows,
        "Data hash": data["hash"],
        "Spec hash": result.get("spec_sha256", ""),
        **{f"Tag {key}": value for key, value in (spec.get("tags") or {}).items()},
    }
    example = {name: [_short(v) for v in values[:1]] for name, values in golden["columns"].items()}
    encoded = [[_short(v) for v in row] for row in golden["encoded"][:1]]
    metrics = {
        f"{result['metric']} (what was searched by), in the search": result["cv_score"],
        **{f"{name}, on the rows held out": value for name, value in result["holdout"]["metrics"].items()},
    }
    sections = {
        "About": _table((), facts.items()),
        "Metrics": _table((), ((name, _number(value)) for name, value in metrics.items())),
        "Columns": _table(
            ("Column", "Type", "Values in training", "Where it is missing"), _features(encoder, ranges)
        ),
        "Calling it": _calls(model, encoder, example, encoded),
        "Limits": f"<ul>{''.join(f'<li>{escape(limit)}</li>' for limit in _LIMITS)}</ul>",
        "Parameters": _table((), result["best_params"].items()),
        "Libraries": _table((), result["versions"].items()),
    }
    body = "".join(f"<h2>{title}</h2>{content}" for title, content in sections.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(model)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(model)}</h1>{body}</body></html>\n"
    )


def _features(encoder: Encoder, ranges: Mapping[str, Sequence[float]]) -> Iterable[Sequence[object]]:
    for feature in encoder.features:
        if isinstance(feature, NumberFeature):
            low_high = ranges.get(feature.name)
            values = f"{_number(low_high[0])} to {_number(low_high[1])}" if low_high else ""
            missing = "stays missing" if feature.fill is None else f"becomes {_number(feature.fill)}"
            yield feature.name, "number (FP64)", values, missing
        else:
            yield feature.name, "category (BYTES)", _listed(feature.categories), _missing_category(feature)


def _missing_category(feature: CategoryFeature) -> str:
    return "like an unknown one" if feature.missing == feature.unknown else "stays missing"


def _calls(
    model: str, encoder: Encoder, example: Mapping[str, Sequence[Any]], encoded: Sequence[Sequence[Any]]
) -> str:
    url = f"http://$TRITON/v2/models/{model}"
    frame = ", ".join(f"{json.dumps(name)}: {list(values)!r}" for name, values in example.items())
    calls = {
        "The table endpoint, in the data's own columns:": (
            f'curl "{url}.table/infer" --data {shlex.quote(table_request(encoder, example))}'
        ),
        "The forest itself, with rows that are encoded already:": (
            f'curl "{url}/infer" --data {shlex.quote(forest_request(encoded))}'
        ),
        "Python, with pandas or polars:": (
            "import pandas\n\nfrom dmls_core.serving import connect\n\n"
            f'connect("{model}", grpc="HOST:8001").predict(pandas.DataFrame({{{frame}}}))'
        ),
        "A CSV file:": f"dmls predict {model.replace('.', '/', 1)} data.csv --out predicted.csv",
    }
    return "<p>TRITON is host and port of Triton's HTTP endpoint.</p>" + "".join(
        f"<p>{title}</p><pre>{escape(code)}</pre>" for title, code in calls.items()
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    top = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(c))}</td>' for c in row)}</tr>" for row in rows)
    return f"<table>{top}{body}</table>"


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(json.dumps(text, ensure_ascii=False) for text in texts[:SHOWN])
    return f"{shown} and {len(texts) - SHOWN:,} more" if len(texts) > SHOWN else shown


def _short(value: Any) -> Any:  # noqa: ANN401  whatever a column holds
    """Return the shortest number that is the same as a float32."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.6g}"
