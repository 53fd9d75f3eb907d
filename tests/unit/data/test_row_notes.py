"""Notes on rows that are unlike those of the training."""

from __future__ import annotations

import math
import time

import numpy as np
import pandas as pd
import pytest

from dmls_core.data import row_notes
from dmls_core.data.encoder import CategoryFeature, DateFeature, Encoder, NumberFeature, Target
from dmls_core.data.row_notes import describe_counts, find_notes

NAN = math.nan
PLANS = ("Month-to-month", "One year", "Two year")


def encoder_of(fill: float | None, missing: float, unknown: float) -> Encoder:
    """An encoder as it is fitted for a kind of model: with medians, with NaN, or with native categories."""
    return Encoder(
        (
            NumberFeature("age", fill, marks=("?",), range=(18.0, 80.0)),
            CategoryFeature("plan", PLANS, missing, unknown, marks=("?",)),
            DateFeature(
                "sold", fill=None if fill is None else (19782.0, 1.0, 1.0, 1.0), range=(19782, 19783)
            ),
        ),
        Target("y"),
    )


ROWS = {
    "age": [30, -5, None, "?", 18, 80.5],
    "plan": ["One year", "month-to-month", "NA", "?", 7, "One year"],
    "sold": ["2024-02-29", "2024-02-28", None, "", "2024-03-01", None],
}
NEAREST = "the nearest category is"
NOTES = {
    1: [
        "column 'age': -5 is below the range of the training data, 18 to 80",
        f"column 'plan': 'month-to-month' does not occur in the training data; {NEAREST} 'Month-to-month'",
        "column 'sold': 2024-02-28 is before the dates of the training data, 2024-02-29 to 2024-03-01",
    ],
    2: ["all columns of the model are missing"],
    3: ["all columns of the model are missing"],
    4: ["column 'plan': '7' does not occur in the training data"],
    5: ["column 'age': 80.5 is above the range of the training data, 18 to 80"],
}


@pytest.mark.parametrize(
    ("fill", "missing", "unknown"), [(40.0, -1.0, -1.0), (None, NAN, -1.0), (None, 4, 3)]
)
def test_what_training_has_not_seen_is_noted(fill, missing, unknown):
    encoder = encoder_of(fill, missing, unknown)
    found = find_notes(encoder, ROWS, encoder.transform(ROWS))
    assert found.by_row() == NOTES
    assert found.counts == {"unknown-category": 2, "out-of-range": 3, "empty-row": 2}
    assert describe_counts(found.counts) == (
        "2 unknown categories, 3 values out of the training's range, 2 rows without any value"
    )
    assert "row 2: -5 is below" in str(found.as_error())
    usual = {name: values[:1] for name, values in ROWS.items()}
    assert find_notes(encoder, usual, encoder.transform(usual)) == row_notes.RowNotes()


def test_a_frame_is_read_by_position():
    encoder = encoder_of(None, NAN, -1)
    frame = pd.DataFrame(ROWS, index=list("abcdef"), dtype=object)
    assert find_notes(encoder, frame, encoder.transform(frame)).by_row() == NOTES


def test_an_encoder_of_an_earlier_release_knows_no_range():
    encoder = Encoder((NumberFeature("age"),), Target("y"))
    assert not find_notes(encoder, {"age": [1e9]}, encoder.transform({"age": [1e9]})).counts


def test_many_notes_are_counted_and_cost_little():
    plans = [f"plan {number}" for number in range(900)]
    encoder = Encoder((CategoryFeature("plan", tuple(plans)), NumberFeature("a", range=(0, 1))), Target("y"))
    rows = {"plan": [f"plan X{number}" for number in range(20_000)], "a": np.full(20_000, 7.0)}
    matrix = encoder.transform(rows)
    started = time.process_time()
    found = find_notes(encoder, rows, matrix)
    assert time.process_time() - started < 1
    assert (found.counts, len(found.notes)) == ({"unknown-category": 20_000, "out-of-range": 20_000}, 1_000)
