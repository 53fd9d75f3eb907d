"""Drift is found in drifted columns, and in no others."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmls_core.monitoring.drift import ALPHA, compare, measure_change
from dmls_core.monitoring.profile import Profile, ProfileColumn, Values, profile_of

COLUMNS = 50
TRAINED, NEW = 2000, 500
THRESHOLD = 0.2


def numbers(name: str, data) -> Values:
    return Values(name, "feature", np.asarray(data, dtype=np.float32))


def texts(name: str, data: list[str | None]) -> Values:
    known = sorted({text for text in data if text is not None})
    codes = [np.nan if text is None else float(known.index(text)) for text in data]
    return Values(name, "feature", np.array(codes), tuple(known))


def one(old: Values, new: Values, threshold: float = THRESHOLD):
    """Compare a single column; return what came of it."""
    baseline = profile_of([old], len(old.data))
    found = compare(baseline, {("feature", new.name): new}, len(new.data), threshold)
    (column,) = found.columns
    return found, column


def many(draw: np.random.Generator, rows: int) -> list[Values]:
    """Fifty columns without drift: normal, skewed, discrete, with gaps, categories common and rare."""
    weights = 1 / np.arange(1, 41)
    made = []
    for number in range(COLUMNS):
        kind, name = number % 5, f"c{number}"
        if kind == 0:
            made.append(numbers(name, draw.normal(size=rows)))
        elif kind == 1:
            made.append(numbers(name, draw.exponential(size=rows) ** 3))
        elif kind == 2:
            made.append(numbers(name, draw.integers(0, 4, size=rows)))
        elif kind == 3:
            made.append(numbers(name, np.where(draw.random(rows) < 0.1, np.nan, draw.random(rows))))
        else:
            codes = draw.choice(40, size=rows, p=weights / weights.sum()).astype(float)
            made.append(Values(name, "feature", codes, tuple(f"k{code}" for code in range(40))))
    return made


def keyed(values: list[Values]) -> dict:
    return {(column.role, column.name): column for column in values}


def test_a_shift_of_one_standard_deviation_in_one_of_fifty_features_is_found():
    draw = np.random.default_rng(3)
    baseline = profile_of(many(draw, TRAINED), TRAINED)
    new = many(draw, NEW)
    planted = new[10]
    new[10] = numbers(planted.name, planted.data + 1.0)  # of unit deviation
    found = compare(baseline, keyed(new), NEW, THRESHOLD)
    assert found.verdict == "drifted"
    assert [column.name for column in found.drifted] == ["c10"]
    assert found.columns[0].name == "c10"
    assert found.columns[0].change.startswith("mean ")
    assert "1 of 50 columns drifted in 500 rows: c10" in found.summary


@pytest.mark.parametrize(
    "draws", [15, pytest.param(100, marks=pytest.mark.nightly("15 draws show the rule, 100 its rate"))]
)
@pytest.mark.parametrize("rows", [NEW, 100])
def test_draws_without_drift_have_no_drift(rows, draws):
    draw = np.random.default_rng(11)
    baseline = profile_of(many(draw, TRAINED), TRAINED)
    alarms = [
        found.summary
        for _ in range(draws)
        if (found := compare(baseline, keyed(many(draw, rows)), rows, THRESHOLD)).drifted
    ]
    assert alarms == []


def test_p_values_are_uniform_without_drift():
    # The rule against false alarms rests on this: of p-values below 0.05 there are about 5 %.
    draw = np.random.default_rng(5)
    p_values = [
        one(numbers("a", draw.normal(size=TRAINED)), numbers("a", draw.normal(size=NEW)))[1].p_value
        for _ in range(300)
    ]
    assert 0.01 < np.mean(np.array(p_values) < 0.05) < 0.1


def test_a_small_change_is_no_drift_however_many_rows():
    draw = np.random.default_rng(0)
    found, column = one(
        numbers("a", draw.normal(size=200_000)), numbers("a", draw.normal(size=200_000) + 0.05)
    )
    assert column.q_value < 1e-6
    assert 0 < column.psi < THRESHOLD
    assert found.verdict == "steady"


def test_the_threshold_decides():
    draw = np.random.default_rng(0)
    old, new = numbers("a", draw.normal(size=5000)), numbers("a", draw.normal(size=5000) + 0.3)
    assert one(old, new, 0.2)[0].verdict == "steady"
    assert one(old, new, 0.05)[0].verdict == "drifted"


def test_a_new_category_is_drift():
    draw = np.random.default_rng(0)
    old = texts("k", list(draw.choice(["a", "b"], size=1000)))
    new = texts("k", [*draw.choice(["a", "b"], size=400), *["brand-new"] * 100])
    found, column = one(old, new)
    assert found.verdict == "drifted"
    assert column.change == "other categories 0.0% → 20.0%, such as 'brand-new'"


def test_a_missing_category_is_drift():
    draw = np.random.default_rng(0)
    old = texts("k", list(draw.choice(["a", "b", "c"], size=900)))
    found, column = one(old, texts("k", list(draw.choice(["a", "b"], size=300))))
    assert found.verdict == "drifted"
    assert column.change.startswith("'c' 3")
    assert column.change.endswith("→ 0.0%")


@pytest.mark.parametrize("before", [0.0, 0.01])
def test_more_missing_values_are_drift(before):
    draw = np.random.default_rng(0)
    old = numbers("a", np.where(draw.random(2000) < before, np.nan, draw.normal(size=2000)))
    new = numbers("a", np.where(draw.random(500) < 0.3, np.nan, draw.normal(size=500)))
    found, column = one(old, new)
    assert found.verdict == "drifted"
    assert column.change.startswith("missing ")


def test_values_outside_the_training_range_are_reported():
    draw = np.random.default_rng(0)
    data = draw.normal(size=1000)
    data[:150] *= 1e6  # a unit was mixed up
    found, column = one(numbers("a", draw.normal(size=2000)), numbers("a", data))
    assert found.verdict == "drifted"
    assert "outside the baseline's range 0.0% → 15" in column.change


def test_infinite_values_are_outside_the_range():
    draw = np.random.default_rng(0)
    data = draw.normal(size=200)
    data[:100] = np.inf
    found, _ = one(numbers("a", draw.normal(size=500)), numbers("a", data))
    assert found.verdict == "drifted"
    json.dumps(found.as_json(), allow_nan=False)


@pytest.mark.parametrize("rows", [1, 99])
def test_small_batches_have_too_few_rows(rows):
    draw = np.random.default_rng(0)
    found, column = one(numbers("a", draw.normal(size=500)), numbers("a", draw.normal(size=rows) + 9))
    assert found.verdict == column.verdict == "too few rows"
    assert column.psi is column.q_value is None
    assert found.summary == f"too few rows to compare: {rows} with 500"


def test_a_small_baseline_has_no_verdict():
    draw = np.random.default_rng(0)
    found, column = one(numbers("a", draw.normal(size=49)), numbers("a", draw.normal(size=500) + 9))
    assert found.verdict == column.verdict == "too few rows"
    assert found.summary == "too few rows to compare: 500 with 49"


def counted(counts) -> ProfileColumn:
    names = tuple(f"k{at}" for at in range(len(counts)))
    return ProfileColumn("a", "feature", "category", (), names, tuple(map(int, counts)), 0, 0, None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([62, 58], [3, 22_155]),
        ([62, 58], [0, 1_000]),
        ([300, 300], [0, 40_000]),
        ([40, 40, 40], [0, 0, 22_000]),
        ([60, *[1] * 20, 40], [0, *[880] * 20, 4_400]),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_collapsed_column_drifts_however_much_larger_one_sample_is(before, after, reverse):
    samples = [counted(before), counted(after)]
    psi, p_value = measure_change(*(reversed(samples) if reverse else samples))
    assert psi > 1
    assert p_value < 1e-9


@settings(max_examples=60, deadline=None)
@given(
    before=st.lists(st.integers(10, 20_000), min_size=2, max_size=30),
    rows=st.integers(100, 200_000),
    start=st.integers(0, 29),
    width=st.integers(1, 3),
)
def test_new_data_in_few_bins_of_the_baseline_drifts(before, rows, start, width):
    filled = {(start + at) % len(before) for at in range(width)}
    if sum(before[at] for at in filled) > 0.3 * sum(before) or sum(before) < 50:
        return
    after = [rows // len(filled) if at in filled else 0 for at in range(len(before))]
    psi, p_value = measure_change(counted(before), counted(after))
    assert psi >= 0.2
    assert p_value <= ALPHA / COLUMNS


@settings(max_examples=60, deadline=None)
@given(
    shares=st.lists(st.integers(1, 100), min_size=2, max_size=30),
    rows=st.tuples(st.integers(50, 50_000), st.integers(100, 200_000)),
)
def test_the_same_shares_never_drift(shares, rows):
    before, after = ([share * count // sum(shares) for share in shares] for count in rows)
    psi, p_value = measure_change(counted(before), counted(after))
    assert psi < 0.2
    assert p_value > ALPHA


def test_constant_features():
    found, column = one(numbers("a", np.full(500, 7.5)), numbers("a", np.full(200, 7.5)))
    assert (found.verdict, column.psi, column.p_value) == ("steady", 0.0, 1.0)
    assert one(numbers("a", np.full(500, 7.5)), numbers("a", np.full(200, 8.5)))[0].verdict == "drifted"


def test_columns_without_a_single_value():
    empty = numbers("a", np.full(500, np.nan))
    assert one(empty, numbers("a", np.full(200, np.nan)))[0].verdict == "steady"
    assert one(empty, numbers("a", np.zeros(200)))[0].verdict == "drifted"
    assert one(numbers("a", np.zeros(500)), numbers("a", np.full(200, np.nan)))[0].verdict == "drifted"


def test_a_missing_column_is_absent():
    baseline = profile_of([numbers("a", np.arange(500)), numbers("b", np.arange(500))], 500)
    found = compare(baseline, {("feature", "a"): numbers("a", np.arange(500))}, 500, THRESHOLD)
    assert found.absent == ("b",)
    assert found.verdict == "steady"
    assert found.as_json()["compared"] == 1


def test_repeated_numbers_share_no_bin_with_their_neighbors():
    _, column = one(numbers("a", [0] * 500 + [1] * 500), numbers("a", [0] * 900 + [1] * 100))
    assert column.old.edges == (0.0, 1.0)
    assert column.verdict == "drifted"


def test_the_json_survives_a_round_trip():
    draw = np.random.default_rng(0)
    baseline = profile_of(many(draw, 300), 300)
    again = Profile.from_json(json.loads(json.dumps(baseline.as_json(), allow_nan=False)))
    assert again == baseline
    document = compare(again, keyed(many(draw, 200)), 200, THRESHOLD).as_json(team="t", job="j")
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert {"schema", "team", "job", "verdict", "rows", "columns", "threshold", "at"} <= document.keys()
    assert document["schema"] == 1


@pytest.mark.parametrize("data", [None, [], {"schema": 2}, {"schema": 1, "rows": 3}])
def test_an_invalid_baseline_is_rejected(data):
    with pytest.raises(ValueError, match="not a baseline"):
        Profile.from_json(data)
