"""What a run's page shows beyond ``result.json``: examples of each kind of error, and the worst segments.

The trainer computes it once from the held-out rows, in time linear in their columns, and stores it as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import CategoryFeature, DateFeature, Encoder, Feature
from dmls_core.data.moments import day_of, hour_of
from dmls_core.evaluate.checks import Evidence
from dmls_core.evaluate.diagnostics import Diagnostics

_SCHEMA = 1

MAX_CELLS = 60
"""Cells of the confusion matrix with examples, the most frequent errors first."""

EXAMPLES = 5
"""Rows of each cell."""

_WORST_ROWS = 10
"""Rows of a regression with the largest errors."""

_EXAMPLE_COLUMNS = 12
"""Columns of an example, the most important ones."""

_MAX_TEXT = 80

_SEGMENT_FEATURES = 25
MAX_SEGMENTS = 6
_MIN_SEGMENT_ROWS = 20
_SEGMENT_Z = 3.0
"""Standard errors by which a segment is worse than all rows: chance rarely gets that far."""

_QUARTERS = (0.25, 0.5, 0.75)
_MAX_CATEGORIES = 50

_MAX_LOSSES = 20_000
"""Held-out rows up to which the loss of each is recorded, to compare runs row by row."""


def describe_insight(
    evidence: Evidence, diagnostics: Diagnostics, encoder: Encoder, leave_out: Collection[str] = ()
) -> dict[str, Any]:
    """Return ``insight.json``; the columns of ``leave_out`` never occur in examples and segments."""
    losses = _row_losses(evidence)
    order = np.argsort(-evidence.importances, kind="stable")
    features = encoder.column_features
    columns = [int(at) for at in order if features[at].name not in leave_out]
    shown = _starts(features, columns)[:_EXAMPLE_COLUMNS]
    return {
        "schema": _SCHEMA,
        "baseline": diagnostics.baseline,
        "permutation": [[name, mean, spread] for name, (mean, spread) in diagnostics.permutation.items()],
        "calibration": diagnostics.calibration,
        "residuals": diagnostics.residuals,
        "scatter": diagnostics.scatter,
        "columns": [features[at].name for at in shown],
        "cells": _cells(evidence, features, shown),
        "worst": _worst_rows(evidence, features, shown, losses),
        "loss": "share of wrong predictions" if evidence.labels else "mean absolute error",
        "mean_loss": float(losses.mean()),
        "segments": _worst_segments(evidence, features, columns[:_SEGMENT_FEATURES], losses),
        "losses": [_rounded(loss) for loss in losses.tolist()] if len(losses) <= _MAX_LOSSES else None,
    }


def _starts(features: Sequence[Feature], columns: Sequence[int]) -> list[int]:
    """Return the first column of each feature of ``columns``, in their order: a date has several."""
    first: dict[str, int] = {}
    for at, feature in enumerate(features):
        first.setdefault(feature.name, at)
    return [first[name] for name in dict.fromkeys(features[at].name for at in columns)]


def _row_losses(evidence: Evidence) -> NDArray[np.float64]:
    """Return each held-out row's loss: 1 for a wrong class, or the absolute error."""
    truth, prediction = evidence.test_target, np.asarray(evidence.prediction)
    if evidence.labels is None:
        return np.asarray(np.abs(prediction - truth), dtype=np.float64)
    return np.asarray(prediction.argmax(axis=1) != truth, dtype=np.float64)


def _cells(evidence: Evidence, features: Sequence[Feature], columns: Sequence[int]) -> list[dict[str, Any]]:
    """Return examples of each cell: of errors the most confident, of correct predictions the least."""
    if evidence.labels is None:
        return []
    truth, prediction = evidence.test_target.astype(int), np.asarray(evidence.prediction)
    predicted, sure = prediction.argmax(axis=1), prediction.max(axis=1)
    pairs = truth * prediction.shape[1] + predicted
    order = np.lexsort((np.where(truth == predicted, sure, -sure), pairs))
    cells, starts = np.unique(pairs[order], return_index=True)
    counts = np.diff([*starts, len(order)])
    wrong = cells // prediction.shape[1] != cells % prediction.shape[1]
    confusions = []
    for at in np.lexsort((-counts, ~wrong))[:MAX_CELLS].tolist():
        true, code = divmod(int(cells[at]), prediction.shape[1])
        rows = order[starts[at] : starts[at] + min(EXAMPLES, counts[at])].tolist()
        examples = [
            {"values": _values(evidence.test[row], features, columns), "probability": _rounded(sure[row])}
            for row in rows
        ]
        confusions.append({"true": true, "predicted": code, "rows": int(counts[at]), "examples": examples})
    return confusions


def _worst_rows(
    evidence: Evidence, features: Sequence[Feature], columns: Sequence[int], losses: NDArray[np.float64]
) -> list[dict[str, Any]]:
    if evidence.labels is not None:
        return []
    return [
        {
            "values": _values(evidence.test[row], features, columns),
            "true": _rounded(evidence.test_target[row]),
            "predicted": _rounded(evidence.prediction[row]),
        }
        for row in np.argsort(-losses, kind="stable")[:_WORST_ROWS].tolist()
    ]


def _worst_segments(
    evidence: Evidence, features: Sequence[Feature], columns: Sequence[int], losses: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Return groups of held-out rows whose mean loss is significantly above that of all, worst first.

    A segment is a category, a quarter of a number's values, or its missing values.
    """
    mean, spread = float(losses.mean()), float(losses.std())
    if len(losses) < 2 * _MIN_SEGMENT_ROWS or spread == 0:
        return []
    segments: list[tuple[float, dict[str, Any]]] = []
    for column in columns:
        feature, name = features[column], evidence.features[column]
        shown: Callable[[float], str] = "{:.4g}".format
        if isinstance(feature, DateFeature) and feature.days and name == feature.columns[0]:
            name, shown = feature.name, day_of
        for text, member in _segments(evidence.test[:, column], feature, shown):
            rows = int(member.sum())
            if rows < _MIN_SEGMENT_ROWS or rows > len(losses) / 2:
                continue
            loss = float(losses[member].mean())
            z = (loss - mean) / (spread / math.sqrt(rows))
            if z >= _SEGMENT_Z:
                segments.append((z, {"feature": name, "values": text, "rows": rows, "loss": _rounded(loss)}))
    segments.sort(key=lambda pair: -pair[0])
    return [segment for _, segment in segments[:MAX_SEGMENTS]]


def _segments(
    values: NDArray[np.float32], feature: Feature, shown: Callable[[float], str]
) -> list[tuple[str, NDArray[np.bool_]]]:
    missing = np.isnan(values)
    if isinstance(feature, CategoryFeature):
        codes = np.unique(values[~missing])[:_MAX_CATEGORIES].tolist()
        return [(str(_raw(code, feature) or "missing"), values == code) for code in codes]
    present = values[~missing]
    edges = np.unique(np.quantile(present, _QUARTERS)) if len(present) else np.array([])
    groups = [("missing", missing)]
    if len(edges):
        groups.append((f"up to {shown(edges[0])}", values <= edges[0]))
        for low, high in pairwise(edges):
            groups.append((f"{shown(low)} to {shown(high)}", (values > low) & (values <= high)))
        groups.append((f"above {shown(edges[-1])}", values > edges[-1]))
    return groups


def _values(row: NDArray[np.float32], features: Sequence[Feature], columns: Sequence[int]) -> list[Any]:
    """Return the values of the features that begin at ``columns``."""
    return [_value(row[at : at + len(features[at].columns)], features[at]) for at in columns]


def _value(parts: NDArray[np.float32], feature: Feature) -> str | float | None:
    if not isinstance(feature, DateFeature):
        return _raw(float(parts[0]), feature)
    if np.isnan(parts[0]) or (
        feature.fill is not None and np.array_equal(parts, np.array(feature.fill, np.float32))
    ):
        return None
    day = [day_of(float(parts[0]))] if feature.days else []
    return " ".join([*day, *([hour_of(float(parts[-1]))] if feature.times else [])])


def _raw(code: float, feature: Feature) -> str | float | None:
    """Return a value as the user knows it; ``None`` if it is missing."""
    if isinstance(feature, CategoryFeature):
        if 0 <= code < len(feature.categories) and code != feature.missing:
            return feature.categories[int(code)][:_MAX_TEXT]
        return None if math.isnan(code) or code == feature.missing else "(other)"
    return None if not math.isfinite(code) else _rounded(code)


def _rounded(value: float) -> float:
    return float(f"{float(value):.6g}")
