# ruff: noqa: DTZ001 - dates in files have no zone
"""Dates are read by one rule, in training and in serving."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.data.encoder import DateFeature, Encoder, NumberFeature, Target
from dmls_core.data.moments import moment, time_of_day
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.table import encode_table, fit_encoder
from dmls_core.errors import DataError
from dmls_core.monitoring.new_data import read_new_data
from dmls_core.monitoring.profile import profile_table
from dmls_core.spec import Columns
from dmls_core.training.champion import _encode

NOON = int(datetime(2026, 1, 31, 12, 5, tzinfo=UTC).timestamp())
FORMATS = {
    "year-first": ("%Y-%m-%d %H:%M:%S", "%Y/%m/%dT%H:%M:%SZ"),
    "day-first": ("%d.%m.%Y %H:%M:%S", "%d-%m-%Y %I:%M:%S %p"),
    "month-first": ("%m/%d/%Y %I:%M:%S%p", "%m/%d/%Y %H:%M:%S+00:00"),
}


@pytest.mark.parametrize(
    ("value", "order"),
    [
        ("2026-01-31 12:05", "year-first"),
        ("2026/1/31 12:05:00.123456789", "day-first"),
        (" 2026.01.31T12:05:00,5 ", "month-first"),
        ("31.01.2026 12:05", "day-first"),
        ("31/1/2026 12:05 PM", "day-first"),
        ("1/31/2026 12:05PM", "month-first"),
        ("2026-01-31t13:05+01:00", "year-first"),
        ("2026-01-31 07:05:00 -0500", "year-first"),
        ("2026-01-31 12:05 UTC", "year-first"),
        ("31.1.26 12:05", "day-first"),
        ("1/31/26 12:05", "month-first"),
        ("20260131 12:05", "year-first"),
        ("20260131T12:05Z", "month-first"),
        ("31-Jan-2026 12:05", "year-first"),
        ("31-JAN-26 12:05", "month-first"),
        ("31. January 2026 12:05", "day-first"),
        ("January 31, 2026 12:05", "day-first"),
        ("Jan. 31 2026 12:05 pm", "year-first"),
        (datetime(2026, 1, 31, 12, 5), "day-first"),
        (datetime(2026, 2, 1, 2, 5, tzinfo=timezone(timedelta(hours=14))), "day-first"),
        (pd.Timestamp("2026-01-31 12:05:00.000000001"), "month-first"),
        (np.datetime64("2026-01-31T12:05", "m"), "month-first"),
    ],
)
def test_spellings_of_one_time(value, order):
    assert moment(value, order) == NOON


def test_a_date_is_its_midnight_and_a_missing_one_is_none():
    assert moment(date(1970, 1, 2), "day-first") == moment("2.1.1970", "day-first") == 86_400
    assert moment("1969-12-31 23:59:59", "year-first") == -1
    for missing in ("", " NA ", None, float("nan"), pd.NaT, np.datetime64("NaT")):
        assert DateFeature("at").seconds(missing) is None
        assert DateFeature("at", days=False).seconds(missing) is None


def test_years_of_two_digits_are_those_from_1969_to_2068():
    years = [moment(f"1.7.{year}", "day-first") for year in ("69", "99", "00", "68")]
    assert years == [moment(f"{year}-07-01", "year-first") for year in (1969, 1999, 2000, 2068)]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("14:05", 50_700), (" 2:05 PM ", 50_700), ("00:00:59.5", 59), (time(14, 5, 0, 9), 50_700)],
)
def test_spellings_of_a_time_of_the_day(value, seconds):
    assert time_of_day(value) == seconds


@pytest.mark.parametrize(
    "value", ["24:00", "12:60", "13:00 PM", "14", "14:5", "2026-01-31 14:05", 14.5, True]
)
def test_what_is_no_time_of_the_day(value):
    with pytest.raises(ValueError, match="is not a time such as 14:05"):
        time_of_day(value)


def test_a_column_of_times_has_their_hour():
    feature = DateFeature("at", times=True, days=False)
    assert feature.columns == ("at (hour)",)
    assert feature.encode(["14:30", time(6, 15)]).tolist() == [[14.5], [6.25]]
    with pytest.raises(ValueError, match="column 'at', row 1: '2026-01-31' is not a time"):
        feature.encode(["2026-01-31"])


@pytest.mark.parametrize(
    "value",
    [
        *(
            "31.1.2026",
            "2026-02-30",
            "2026-13-01",
            "0000-01-01",
            "2026-1",
            "20261331",
            "2026131",
            "31 Jnauary 2026",
            "31 Jan",
            "26-01-31",
            "2026-01-31 24:00",
        ),
        *(
            "2026-01-31 12:60",
            "2026-01-31 13:00 PM",
            "2026-01-31 0:00 AM",
            "2026-01.31",
            "2026-01-31 x",
            "12:05",
        ),
        *(
            "9999-12-31 23:00-05:00",
            "0001-01-01 00:00+01:00",
            "\u0662\u0660\u0662\u0666-01-31",
            20260132,
            1.5,
            True,
            b"2026-01-31",
        ),
    ],
)
def test_anything_else_is_an_error(value):
    with pytest.raises(ValueError, match="is not a year-first date"):
        moment(value, "year-first")


def test_the_parts_of_a_date():
    feature = DateFeature("sold", "day-first", times=True, fill=(1, 2, 3, 4, 5))
    assert feature.columns == ("sold (days)", "sold (month)", "sold (day)", "sold (weekday)", "sold (hour)")
    encoded = feature.encode(["29.2.2024 14:30", None]).tolist()
    assert encoded == [[19782, 2, 29, 3, 14.5], [1, 2, 3, 4, 5]]
    assert feature.encode([]).shape == (0, 5)
    with pytest.raises(ValueError, match="column 'sold', row 2: 'soon' is not a day-first date"):
        feature.encode(["1.1.2026", "soon"])


def test_only_an_encoder_with_dates_has_the_later_schema():
    plain = Encoder((NumberFeature("x"),), Target("y"))
    dated = Encoder(
        (DateFeature("at", fill=(1.0, 2.0, 3.0, 4.0)), DateFeature("on", times=True)), Target("y")
    )
    timed = Encoder((*dated.features, DateFeature("time", times=True, days=False)), Target("y"))
    assert [encoder.as_json()["schema"] for encoder in (plain, dated, timed)] == [1, 2, 3]
    for encoder in (plain, dated, timed):
        assert Encoder.from_json(json.loads(json.dumps(encoder.as_json()))) == encoder


spellings = st.sampled_from([(order, form) for order, forms in FORMATS.items() for form in forms])
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(microsecond=0))


@given(
    spellings,
    st.lists(st.one_of(st.none(), moments), min_size=6, max_size=30),
    st.booleans(),
)
def test_training_and_serving_read_the_same(tmp_path_factory, spelling, values, fill):
    order, form = spelling
    values = [datetime(2024, 2, 29, 13), *values]
    # strftime does not pad years on every system.
    texts = ["" if at is None else at.strftime(form.replace("%Y", f"{at.year:04}")) for at in values]
    path = tmp_path_factory.mktemp("data") / "data.csv"
    path.write_text("at,y\n" + "".join(f"{text},{row % 2}\n" for row, text in enumerate(texts)))
    table = read_table([path], Columns(target="y", dates=("at",), date_order=order), "classification")
    rows = np.arange(len(values))
    encoder = fit_encoder(table, rows[:4], fill_missing=fill)
    trained = encode_table(encoder, table, rows)
    for served in (
        texts,
        values,
        pd.Series(values, dtype=object),
        np.array(values, dtype="datetime64[s]"),
        table.raw(rows)["at"],
    ):
        assert np.array_equal(encoder.transform({"at": served}), trained, equal_nan=True)
    assert len(encoder.column_names) == table.matrix.shape[1]


def test_parquet_and_text_are_the_same(tmp_path):
    times = [datetime(2026, 3, 29, 2, 30), datetime(2026, 7, 1, 12), None, datetime(1999, 12, 31)]
    frame = pl.DataFrame({"at": times, "y": [0, 1, 0, 1]}).with_columns(
        zoned=pl.col("at").dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"),
        nano=pl.col("at").cast(pl.Datetime("ns")),
        text=pl.col("at").dt.strftime("%Y-%m-%d %H:%M"),
        day=pl.col("at").cast(pl.Date),
    )
    path = tmp_path / "data.parquet"
    frame.write_parquet(path)
    names = ("at", "zoned", "nano", "text", "day")
    table = read_table([path], Columns(target="y", features=names, dates=names), "classification")
    first, *others = np.hsplit(table.matrix[:, :20], 4)
    assert all(np.array_equal(first, other, equal_nan=True) for other in others)
    assert np.array_equal(table.matrix[:, 20:], first[:, :4], equal_nan=True)


def read_error(path: Path, text: str, **roles: object) -> str:
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_table(
            [path], Columns.model_validate({"target": "y", "dates": ["at"], **roles}), "classification"
        )
    return str(caught.value)


def test_a_cell_that_is_no_date_is_named_with_the_order_that_reads_it(tmp_path):
    path = tmp_path / "data.csv"
    found = read_error(path, "at,y\n2026-01-01,0\n31.1.2026,1\n")
    assert "data.csv:3" in found
    assert "31.1.2026" in found
    assert 'set [columns] date_order = "day-first"' in found
    assert "correct or empty these values" in read_error(path, "at,y\n2026-01-01,0\n2026-02-30,1\n")
    assert "has no value in any row" in read_error(path, "at,y\n,0\nNA,1\n")
    clash = read_error(path, "at,at (month),y\n2026-01-01,1,0\n2026-02-01,2,1\n")
    assert "has a part with the name of another column" in clash


def dated_table(path: Path, text: str, **roles: object):
    path.write_text(text)
    return read_table([path], Columns.model_validate({"target": "y", **roles}), "classification")


def test_a_champion_reads_rows_whose_dates_have_times_by_now(tmp_path):
    path, roles = tmp_path / "data.csv", {"dates": ["at"]}
    before = dated_table(path, "at,x,y\n2026-01-01,1,0\n2026-01-03,2,1\n", **roles)
    now = dated_table(path, "x,at,y\n1,2026-01-01 12:00,0\n2,,1\n", **roles)
    champion = fit_encoder(before, np.arange(2), fill_missing=False)
    encoded = _encode(champion, now, np.arange(2))
    assert encoded[0].tolist() == [20454, 1, 1, 3, 1]
    assert np.isnan(encoded[1, :4]).all()


def test_dates_of_new_data_are_encoded_but_not_compared(tmp_path):
    path = tmp_path / "data.csv"
    table = dated_table(path, "at,x,y\n2026-01-01,1,0\n2026-01-03,2,1\n", dates=["at"])
    profile = profile_table(table)
    assert [column.name for column in profile.columns] == ["x", "y"]
    encoder = fit_encoder(table, np.arange(2), fill_missing=True)
    path.write_text("x,at\n1,2026-01-03\n2,soon\n")
    dates = [feature for feature in encoder.features if isinstance(feature, DateFeature)]
    found = read_new_data([path], profile, dates).table(encoder.feature_names)
    assert encode_table(encoder, found, np.arange(2)).tolist() == [[20456, 1, 3, 5, 1], [20454, 1, 1, 3, 2]]


def test_training_and_serving_read_times_of_the_day(tmp_path):
    texts = ["14:30", "6:15 AM", "", "23:59:59"]
    table = dated_table(
        tmp_path / "data.csv", "at,y\n" + "".join(f"{t},{n % 2}\n" for n, t in enumerate(texts)), dates=["at"]
    )
    frame = pl.DataFrame({"at": [time(14, 30), time(6, 15), None, time(23, 59, 59)], "y": [0, 1, 0, 1]})
    frame.write_parquet(tmp_path / "data.parquet")
    columns = Columns(target="y", dates=("at",))
    stored = read_table([tmp_path / "data.parquet"], columns, "classification")
    assert np.array_equal(table.matrix, stored.matrix, equal_nan=True)
    assert table.matrix[:2].tolist() == [[14.5], [6.25]]
    rows = np.arange(4)
    encoder = fit_encoder(table, rows, fill_missing=False)
    trained = encode_table(encoder, table, rows)
    for served in (texts, frame["at"].to_list(), table.raw(rows)["at"]):
        assert np.array_equal(encoder.transform({"at": served}), trained, equal_nan=True)


def test_dates_and_times_in_one_column_are_an_error(tmp_path):
    found = read_error(tmp_path / "data.csv", "at,y\n2026-01-01,0\n14:30,1\n2026-01-02,0\n")
    assert "data.csv:3: at: is not a year-first date" in found
