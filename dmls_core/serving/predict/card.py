"""The model card: one HTML page about a model for its callers."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmls_core.data.encoder import (
    CategoryFeature,
    DateFeature,
    Encoder,
    Feature,
    NumberFeature,
)
from dmls_core.data.moments import day_of, hour_of
from dmls_core.data.split.description import describe_split
from dmls_core.html import TableData, render_fragment, render_page
from dmls_core.serving.triton.model_config import MAX_BATCH_SIZE
from dmls_core.serving.triton.tensors import forest_request, table_request

CARD = "card.html"

SHOWN = 30

MAX_COLUMNS = 200
"""Columns in the table and in the examples; of a wider table, the card lists the most important ones."""

_LIMITS = (
    "Outside the ranges above a forest predicts as at their ends: it does not extrapolate.",
    "A category that is not listed is predicted like one that is missing from the training data.",
    "Numbers are 32-bit floating point numbers, as in training.",
    f"A request has at most {MAX_BATCH_SIZE:,} rows.",
    "The metrics were measured on the held-out rows and hold for data like those.",
)

_SIZES = {
    "trees": "Trees",
    "depth": "Depth",
    "nodes": "Nodes",
    "bytes": "Bytes of the checkpoint",
    "latency_ms": "Prediction of one row, without a server, in ms",
    "score": "Metric of the search, on the held-out rows",
}
"""Key of a size in ``compact`` and ``ensemble`` of ``result.json`` -> its name on the card."""

_MEASURED = ("latency_ms", "score")

_END = "</main>"
"""Where ``card_of_deployed`` inserts its section."""


def write_card(folder: Path, result: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    """Write the card into a run's ``model/`` folder.

    The folder contains ``encoder.json``, ``golden.json`` and ``model.json``. ``seconds`` and ``artifacts``
    may still be missing in ``result``.
    """
    encoder, golden, model_json = (
        json.loads((folder / f"{name}.json").read_bytes()) for name in ("encoder", "golden", "model")
    )
    page = _render_card(result, spec, Encoder.from_json(encoder), golden, model_json.get("ranges", {}))
    (folder / CARD).write_text(page, encoding="utf-8")


def card_of_deployed(page: str, facts: Mapping[str, object]) -> str:
    """Return the page of ``_render_card`` with a section on how the model is served: its facts by name."""
    section = render_fragment("card_serving.html", facts=_table(facts))
    before, end, after = page.rpartition(_END)
    return f"{before}{section}{end}{after}"


def _render_card(
    result: Mapping[str, Any],
    spec: Mapping[str, Any],
    encoder: Encoder,
    golden: Mapping[str, Any],
    ranges: Mapping[str, Sequence[float]],
) -> str:
    """Return the card: one HTML page without scripts that loads nothing.

    The first row of ``golden`` is the example; ``ranges`` has the smallest and largest value of each number
    in the training rows.
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
        **({"Held out": describe_split(data["split"])} if "split" in data else {}),
        "Data hash": data["hash"],
        "Spec hash": result.get("spec_sha256", ""),
        **{f"Tag {key}": value for key, value in (spec.get("tags") or {}).items()},
    }
    example = {name: [_short(v) for v in values[:1]] for name, values in golden["columns"].items()}
    encoded = [[_short(v) for v in row] for row in golden["encoded"][:1]]
    ensemble = result.get("ensemble")
    metrics = {
        f"{result['metric']} (metric of the search), in the search": result["cv_score"],
        **{f"{name}, on the held-out rows": value for name, value in result["holdout"]["metrics"].items()},
    }
    parameters = dict(sorted(result["best_params"].items()))
    tuned = set(result.get("tuned") or parameters)
    return render_page(
        "card.html",
        model,
        about=_table(facts),
        metrics=_table({name: _number(value) for name, value in metrics.items()}),
        columns=TableData(
            ("Column", "Type", "Values in training", "If missing"),
            list(_features(_most_important(encoder, result), ranges)),
        ),
        n_columns=len(encoder.features),
        calls=_calls(model, encoder, example, encoded),
        limits=_LIMITS,
        sizes=_sizes(result.get("compact"), ("Before", "After")),
        members=_members(ensemble["members"]) if ensemble else None,
        member_sizes=_sizes(ensemble, ("Best trial alone", "Ensemble")),
        tuned=_table({name: value for name, value in parameters.items() if name in tuned}),
        others=_table({name: value for name, value in parameters.items() if name not in tuned}),
        versions=_table(result["versions"]),
    )


def _members(members: Sequence[Mapping[str, Any]]) -> TableData:
    """Return the members of an ensemble."""
    rows = [
        (
            member["model"],
            member["trial"],
            f"{member['weight']:.2f}",
            member["trees"],
            ", ".join(f"{name} = {value}" for name, value in member["params"].items()),
        )
        for member in members
    ]
    return TableData(("Model", "Trial", "Weight", "Trees or rounds", "Parameters"), rows)


def _sizes(sizes: Mapping[str, Any] | None, heads: tuple[str, str]) -> TableData | None:
    """Return the sizes of two models: ``before`` and ``after``."""
    if sizes is None:
        return None
    before, after = sizes["before"], sizes["after"]
    rows = [
        (label, *(_number(size[key]) if key in _MEASURED else f"{size[key]:,}" for size in (before, after)))
        for key, label in _SIZES.items()
    ]
    return TableData(("", *heads), rows)


def _table(rows: Mapping[str, object]) -> TableData:
    return TableData(("", ""), [(name, str(value)) for name, value in rows.items()])


def _most_important(encoder: Encoder, result: Mapping[str, Any]) -> Sequence[Feature]:
    if len(encoder.features) <= MAX_COLUMNS:
        return encoder.features
    ordered = sorted(
        encoder.features, key=lambda feature: -sum(result["importances"][name] for name in feature.columns)
    )
    return ordered[:MAX_COLUMNS]


def _features(
    features: Iterable[Feature], ranges: Mapping[str, Sequence[float]]
) -> Iterable[Sequence[object]]:
    for feature in features:
        if isinstance(feature, NumberFeature):
            low_high = ranges.get(feature.name)
            values = f"{_number(low_high[0])} to {_number(low_high[1])}" if low_high else ""
            missing = "stays missing" if feature.fill is None else f"becomes {_number(feature.fill)}"
            yield feature.name, "number (FP64)", values, missing
        elif isinstance(feature, DateFeature):
            low_high = ranges.get(feature.name)
            values = " to ".join(map(day_of if feature.days else hour_of, low_high)) if low_high else ""
            missing = "stays missing" if feature.fill is None else "becomes the medians of its parts"
            yield feature.name, "date (BYTES)", values, missing
        else:
            yield feature.name, "category (BYTES)", _listed(feature.categories), _missing_category(feature)


def _missing_category(feature: CategoryFeature) -> str:
    if feature.missing == feature.unknown:
        return "like an unknown category"
    return "stays missing" if math.isnan(feature.missing) else "a category of its own"


def _calls(
    model: str, encoder: Encoder, example: Mapping[str, Sequence[Any]], encoded: Sequence[Sequence[Any]]
) -> dict[str, str]:
    """Return title -> code of each way to call the model; a wide table's columns come from a file."""
    url = f"http://$TRITON/v2/models/{model}"
    client = "import pandas\n\nfrom dmls_core.serving import connect\n\n"
    client += f'connect("{model}", grpc="HOST:8001").predict('
    file = {"A CSV file:": f"dmls predict {model.replace('.', '/', 1)} data.csv --out predicted.csv"}
    if len(example) > MAX_COLUMNS:
        options = ", keep_default_na=False" if encoder.not_missing else ""
        return {"Python, with pandas or polars:": f'{client}pandas.read_csv("data.csv"{options}))'} | file
    frame = ", ".join(f"{json.dumps(name)}: {list(values)!r}" for name, values in example.items())
    return {
        "The table endpoint, with the columns of the data:": (
            f'curl "{url}.table/infer" --data {shlex.quote(table_request(encoder, example))}'
        ),
        "The forest itself, with encoded rows:": (
            f'curl "{url}/infer" --data {shlex.quote(forest_request(encoded))}'
        ),
        "Python, with pandas or polars:": f"{client}pandas.DataFrame({{{frame}}}))",
    } | file


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(json.dumps(text, ensure_ascii=False) for text in texts[:SHOWN])
    return f"{shown} and {len(texts) - SHOWN:,} more" if len(texts) > SHOWN else shown


def _short(value: Any) -> Any:  # noqa: ANN401  whatever a column holds
    """Return the shortest number that is the same as a float32."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.6g}"
