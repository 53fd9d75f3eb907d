"""Requests of the open inference protocol as JSON text, as any HTTP client sends them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dmls_core.data.encoder import Encoder, NumberFeature, category_text, number


def table_request(encoder: Encoder, rows: Mapping[str, Sequence[Any]]) -> str:
    """Return what asks the table endpoint.

    Args:
        encoder: the model's.
        rows: raw values by column; missing numbers become ``NaN``, which Triton reads, missing texts ``""``.
    """
    inputs = []
    for feature in encoder.features:
        values: list[Any]
        if isinstance(feature, NumberFeature):
            kind, values = "FP64", [number(value) for value in rows[feature.name]]
        else:
            kind, values = "BYTES", [category_text(value) or "" for value in rows[feature.name]]
        inputs.append({"name": feature.name, "datatype": kind, "shape": [len(values), 1], "data": values})
    return json.dumps({"inputs": inputs}, ensure_ascii=False)


def forest_request(encoded: Sequence[Sequence[float | None]]) -> str:
    """Return what asks the forest.

    Args:
        encoded: rows as the encoder encodes them; None is NaN.
    """
    data = [math.nan if value is None else value for row in encoded for value in row]
    shape = [len(encoded), len(encoded[0]) if encoded else 0]
    return json.dumps({"inputs": [{"name": "input__0", "datatype": "FP32", "shape": shape, "data": data}]})
