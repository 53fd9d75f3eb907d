"""A number is one wherever rows come from: in training, requests, files to predict, and Triton's client."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmls_core.data.encoder import Encoder, NumberFeature, Target
from dmls_core.data.formats.conversion import convert
from dmls_core.data.request_rows import CSV, JSON, read_rows
from dmls_core.data.table.reader import read_table
from dmls_core.errors import DataError
from dmls_core.serving import Predictions, predict_file
from dmls_core.serving.predict.parquet_files import rows_as_csv
from dmls_core.serving.triton.tensors import read_columns
from dmls_core.spec import Columns
from dmls_core.spec.data_table import Data

ENCODER = Encoder((NumberFeature("a", range=(2.0, 9.0)),), Target("y"))
OTHERS = [(7, "v"), (8, "u"), (9, "v")]


class Echo:
    """In place of a served model: its predictions are what it gets."""

    encoder, model, version = ENCODER, "lab.echo", 1

    def predict(self, columns: dict[str, Any]) -> Predictions:
        return Predictions(ENCODER.transform(columns)[:, 0], None, (), 1, None)  # type: ignore[arg-type]


def train(path: Path) -> float:
    plain = convert(path, Data(), path.parent / "plain")
    return float(read_table([plain], Columns(target="y"), "classification").matrix[0, 0])


def request(content: bytes, media_type: str) -> float:
    return float(ENCODER.transform(read_rows(content, media_type, ["a"], "y").columns)[0, 0])


def predict(path: Path) -> float:
    out = io.StringIO()
    with rows_as_csv(path, {}, path.parent) as rows:
        predict_file(Echo(), rows, out)  # type: ignore[arg-type]
    return float(out.getvalue().splitlines()[1].rpartition(",")[2])


def connect(value: object) -> float:
    read = read_columns({"a": [value, 7]}, {"a": "TYPE_FP64"}, [["a"]], booleans=[])["a"]
    return float(np.float32(read[0]))


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        ('" 7 "', 7),
        ('"+.5"', 0.5),
        ("1e5", 1e5),
        ("16777217", 16777216),
        ('"NaN"', np.nan),
        ('"N/A"', np.nan),
        ('""', np.nan),
        ('"1_000"', None),
        ('"1,5"', None),
        ('"5 kg"', None),
        ('"inf"', None),
        ("1e39", None),
        ('"1e39"', None),
        ("1" + "0" * 50, None),
        ('"1e999"', None),
        ('"\u0661"', None),
        ("true", None),
        ('"True"', None),
    ],
)
def test_a_number_is_the_same_from_everywhere(literal: str, expected: float | None, tmp_path: Path):
    value = json.loads(literal)
    text = value if isinstance(value, str) else literal
    table, lines = tmp_path / "a.csv", tmp_path / "a.jsonl"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("a", "y"), (text, "u"), *OTHERS])
    first = f'{{"a": {literal}, "y": "u"}}'
    lines.write_text("\n".join([first, *(json.dumps({"a": a, "y": y}) for a, y in OTHERS), ""]))
    ways: dict[str, Callable[[], float]] = {
        "training, CSV": lambda: train(table),
        "training, JSON lines": lambda: train(lines),
        "request, CSV": lambda: request(table.read_bytes(), CSV),
        "request, JSON": lambda: request(f"[{first}]".encode(), JSON),
        "file, CSV": lambda: predict(table),
        "file, JSON lines": lambda: predict(lines),
        "client of Triton": lambda: connect(value),
    }
    answers: dict[str, float | None] = {}
    for way, read in ways.items():
        try:
            answers[way] = read()
        except (DataError, ValueError):
            answers[way] = None
    for way, answer in answers.items():
        assert (answer is None) == (expected is None), (way, answers)
        if answer is not None:
            np.testing.assert_array_equal(np.float32(answer), np.float32(expected), err_msg=way)


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", '1, "a": 2'])
def test_json_of_no_standard_is_refused_in_files_and_requests(literal: str, tmp_path: Path):
    path = tmp_path / "a.jsonl"
    row = f'{{"y": "u", "a": {literal}}}'
    path.write_text("\n".join([row, *(json.dumps({"y": y, "a": a}) for a, y in OTHERS), ""]))
    for read in (lambda: train(path), lambda: predict(path), lambda: request(f"[{row}]".encode(), JSON)):
        with pytest.raises(DataError, match="is not a number of JSON|is too large a number|occurs twice"):
            read()
