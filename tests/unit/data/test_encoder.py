"""The encoder: raw values to a matrix by written rules, the same from every container."""

from __future__ import annotations

import ast
import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.data import encoder as module
from dmls_core.data import moments
from dmls_core.data.encoder import (
    MAX_CELLS,
    CategoryFeature,
    CellError,
    DateFeature,
    Encoder,
    NumberFeature,
    Target,
    category_text,
    number,
)
from dmls_core.data.table.reader import read_table
from dmls_core.errors import DataError
from dmls_core.spec.tables import Columns

COLOURS = CategoryFeature("colour", ("1", "2.5", "blue", "true"))
ENCODER = Encoder((NumberFeature("size", 3.5), COLOURS), Target("y", ("0", "1")))


def test_it_stands_alone():
    nodes = [
        node
        for one in (module, moments)
        for node in ast.walk(ast.parse(Path(one.__file__).read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    allowed = {*sys.stdlib_module_names, "numpy"}
    assert {name.split(".")[0] for name in imported} <= allowed
    assert {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level} == {"moments"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (1.0, "1"),
        ("1", "1"),
        (" 1.0 ", "1"),
        ("1.50", "1.5"),
        (np.float32(0.1), "0.1"),
        (0.1, "0.1"),
        (np.int64(7), "7"),
        (-0.0, "0"),
        ("-0.0", "0"),
        (1e22, "1" + "0" * 22),
        (1e-5, "0.00001"),
        (2**70, str(2**70)),
        ("01", "01"),
        ("1e3", "1e3"),
        ("1e-07", "0.0000001"),
        ("1.5e+16", "15000000000000000"),
        ("1e+999", "1e+999"),
        (True, "true"),
        (np.bool_(False), "false"),
        ("TRUE", "true"),
        (" red ", "red"),
        ("Red", "Red"),
        ("NA", None),
        ("", None),
        (None, None),
        (math.nan, None),
        (pd.NA, None),
        (pd.NaT, None),
        (np.float32("nan"), None),
        (math.inf, "inf"),
    ],
)
def test_category_text(value, text):
    assert category_text(value) == text


@given(st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)))
def test_a_number_and_its_plain_text_are_one_category(value):
    plain = np.format_float_positional(float(value), trim="-")
    assert category_text(value) == category_text(float(value)) == category_text(plain)
    assert category_text(repr(float(value))) == category_text(plain)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.5", 1.5),
        (" 2 ", 2.0),
        (True, 1.0),
        ("False", 0.0),
        (2**70, 2.0**70),
        ("3.4028235e38", 3.4028235e38),
    ],
)
def test_number(value, expected):
    assert number(value) == expected


@pytest.mark.parametrize(
    "value", ["abc", [1], object(), "1,5", "1_000", "\uff11\uff12", pd.Timestamp("2020-01-01")]
)
def test_what_is_no_number_is_an_error(value):
    with pytest.raises(ValueError, match="is not a number"):
        number(value)


@pytest.mark.parametrize("value", ["inf", "-Infinity", math.inf, "1e39", 1e39, 10**400, -(10**400), "1e999"])
def test_what_float32_cannot_hold_is_an_error(value):
    with pytest.raises(ValueError, match="is beyond the range of 32-bit|is not a number"):
        number(value)
    with pytest.raises(CellError, match="row 2"):
        NumberFeature("n").encode(np.array([1, value], dtype=object))


TEXTS = [
    "1",
    "+1",
    ".5",
    "5.",
    "1e3",
    "1E+3",
    "1.e3",
    "0001",
    "1e",
    "nan",
    "NaN",
    "NAN",
    "+nan",
    "1_000",
    "\uff11\uff12",
]
TEXTS += [
    "0x10",
    "1d3",
    "+-1",
    "1e-400",
    "1.5f",
    "e5",
    ".",
    "1 000",
    "\u22121",
    "-",
    "1__0",
    "1e0005",
    "3.4028236e38",
]
TEXTS += ["inf", "-inf", "Infinity", "1e39", "-1e39", "1e400", "1e38"]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_a_number_if_it_is_one_in_the_training(text: str, tmp_path: Path):
    (tmp_path / "a.csv").write_text("a,y\n" + f"{text},u\n7,v\n8,u\n9,v\n")
    try:
        value = read_table([tmp_path / "a.csv"], Columns(target="y"), "classification").matrix[0, 0]
    except DataError:
        value = None
    try:
        served = NumberFeature("a").encode(np.array([text, "7"], dtype=object))[0]
    except CellError:
        served = None
    assert (served is None) == (value is None)
    assert value is None or np.array_equal(served, value, equal_nan=True)


def test_booleans_are_numbers_only_where_the_training_values_are():
    flags, sizes = NumberFeature("a", range=(0.0, 1.0)), NumberFeature("a", range=(0.0, 7.0))
    for values in ([True, "false"], np.array([True, False])):
        np.testing.assert_array_equal(flags.encode(np.asarray(values, dtype=object)), [1, 0])
        with pytest.raises(CellError, match="is a boolean, where the training data has numbers"):
            sizes.encode(np.asarray(values))


def test_an_error_names_the_first_cells_by_row():
    encoder = Encoder((NumberFeature("a"), DateFeature("b")), Target("y"))
    with pytest.raises(CellError, match="and more$") as raised:
        encoder.transform({"a": ["x"] * 30, "b": ["2026-01-01", *["?"] * 29]})
    assert [(cell.row, cell.column) for cell in raised.value.cells[:3]] == [(0, "a"), (1, "a"), (1, "b")]
    assert len(raised.value.cells) == MAX_CELLS


SIZES = [1.5, None, "2", "NA", True, float("nan"), "1e38"]
ENCODED = np.array([1.5, 3.5, 2, 3.5, 1, 3.5, 1e38], dtype=np.float32)


@pytest.mark.parametrize(
    "container", [list, tuple, lambda v: np.array(v, dtype=object), lambda v: pd.Series(v, dtype=object)]
)
def test_numbers_from_any_container(container):
    colours = ["blue"] * len(SIZES)
    matrix = ENCODER.transform({"size": container(SIZES), "colour": container(colours), "other": []})
    assert matrix.dtype == np.float32
    assert matrix.flags.c_contiguous
    np.testing.assert_array_equal(matrix[:, 0], ENCODED)
    np.testing.assert_array_equal(matrix[:, 1], np.full(len(SIZES), 2, dtype=np.float32))


def test_categories_from_any_container():
    expected = [0, 0, 1, 2, 3, np.nan, -1]
    values = [1, "1.0", 2.5, " blue", True, None, "green"]
    for container in (list, lambda v: pd.Series(v, dtype=object), lambda v: np.array(v, dtype=object)):
        np.testing.assert_array_equal(COLOURS.encode(np.asarray(container(values), dtype=object)), expected)
    frame = pd.DataFrame(
        {"size": pd.array([1, None], dtype="Int64"), "colour": pd.Categorical(["blue", None])}
    )
    np.testing.assert_array_equal(
        ENCODER.transform(frame), np.array([[1, 2], [3.5, np.nan]], dtype=np.float32)
    )
    floats = pd.DataFrame({"size": np.float32([1, np.nan]), "colour": np.array([1, np.nan])})
    np.testing.assert_array_equal(
        ENCODER.transform(floats), np.array([[1, 0], [3.5, np.nan]], dtype=np.float32)
    )
    texts = pd.DataFrame({"size": ["1", "nan"], "colour": pd.Series(["blue", None], dtype="string")})
    np.testing.assert_array_equal(
        ENCODER.transform(texts), np.array([[1, 2], [3.5, np.nan]], dtype=np.float32)
    )


def test_errors_name_the_columns():
    with pytest.raises(ValueError, match="columns are missing: 'size', 'colour'"):
        ENCODER.transform({})
    with pytest.raises(ValueError, match="differ in length"):
        ENCODER.transform({"size": [1], "colour": []})
    with pytest.raises(ValueError, match="column 'size', row 2: 'big' is not a number"):
        ENCODER.transform({"size": [1, "big"], "colour": ["blue", "blue"]})
    with pytest.raises(ValueError, match="one dimension"):
        ENCODER.transform({"size": np.zeros((2, 2)), "colour": ["blue", "blue"]})
    with pytest.raises(ValueError, match="is not a number"):
        ENCODER.transform({"size": np.array(["2020-01-01"], dtype="datetime64[D]"), "colour": ["blue"]})


def test_no_rows():
    assert ENCODER.transform({"size": [], "colour": []}).shape == (0, 2)


def test_decode():
    assert ENCODER.decode([1, 0, np.int64(1)]) == ["1", "0", "1"]
    with pytest.raises(IndexError, match="no class 2"):
        ENCODER.decode([2])
    with pytest.raises(IndexError, match="no class -1"):
        ENCODER.decode([-1])
    with pytest.raises(ValueError, match="has no labels"):
        Encoder((), Target("y")).decode([0])


texts = st.text(max_size=20)
some_texts = st.lists(texts, max_size=5).map(tuple)
features = st.one_of(
    st.builds(
        NumberFeature,
        texts,
        st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32),
        range=st.none() | st.just((-1.5, 2.0)),
    ),
    st.builds(
        CategoryFeature, texts, st.lists(texts, max_size=5).map(tuple), st.sampled_from([math.nan, -1.0])
    ),
)
targets = st.builds(Target, texts, st.none() | st.lists(texts, max_size=5).map(tuple))


@given(st.lists(features, max_size=5), targets)
def test_json_round_trip_is_exact(some, target):
    encoder = Encoder(tuple(some), target)
    text = json.dumps(encoder.as_json(), allow_nan=False)
    again = Encoder.from_json(json.loads(text))
    assert again.as_json() == encoder.as_json()
    # NaN is not equal to itself: compare what is written of it.
    assert repr(again) == repr(encoder)


@pytest.mark.parametrize(
    "data", [{}, {"schema": 2}, [], None, {"schema": 1}, {"schema": 1, "features": 3, "target": 1}]
)
def test_what_is_no_encoder_is_an_error(data):
    with pytest.raises(ValueError, match="not an encoder"):
        Encoder.from_json(data)


def test_an_unknown_kind_of_feature_is_an_error():
    with pytest.raises(ValueError, match="kind 'time'"):
        Encoder.from_json({"schema": 1, "features": [{"name": "a", "kind": "time"}], "target": {"name": "y"}})
