"""Delayed labels are joined with the logged predictions that they belong to."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from dmls_core.errors import DataError
from dmls_core.monitoring.delayed_labels import join_labels, read_labels


def log(path, ids, rows, predictions, version=1, **more):
    frame = pl.DataFrame(
        {
            "size": [1.0] * len(ids),
            "dmls.request_id": ids,
            "dmls.row": pl.Series(rows, dtype=pl.Int32),
            "dmls.version": [version] * len(ids),
            "dmls.prediction": predictions,
            **more,
        }
    )
    frame.write_parquet(path)
    return path


def probabilities(second):
    return {
        "dmls.probability.no": pl.Series([1 - p for p in second], dtype=pl.Float32),
        "dmls.probability.yes": pl.Series(second, dtype=pl.Float32),
    }


@pytest.fixture
def labels(tmp_path):
    def read(text, *, numbers=False, name="labels.csv", **options):
        path = tmp_path / name
        path.write_text(text)
        return read_labels(path, "kind", numbers=numbers, options=options)

    return read


def test_labels_join_predictions_of_the_same_request_and_row(labels, tmp_path):
    read = labels("kind,row,request_id,note\nyes,0,007,x\nno,1,007,x\nyes,2,007,x\n,0,b,x\nno,0,unknown,x\n")
    assert read.height == 4  # one row has no target yet
    path = log(
        tmp_path / "a.parquet",
        ["007"] * 2 + ["7"],
        [0, 1, 0],
        ["yes", "yes", "no"],
        **probabilities([0.9, 0.8, 0.1]),
    )
    join = join_labels([read], [path])
    assert (join.labels, join.several, join.ambiguous, join.versions) == (4, 0, 0, [(1, 2)])
    truth, predicted = join.truth_and_predictions(1, ("no", "yes"))
    assert sorted(zip(truth.tolist(), predicted[:, 1].round(1).tolist(), strict=True)) == [
        (0, pytest.approx(0.8)),
        (1, pytest.approx(0.9)),
    ]


def test_without_a_row_column_labels_belong_to_requests_of_one_row(labels, tmp_path):
    read = labels("request_id,kind\none,1.5\nmany,2\n", numbers=True)
    path = log(tmp_path / "a.parquet", ["one", "many", "many"], [0, 0, 1], [1.0, 2.0, 3.0])
    join = join_labels([read], [path])
    assert join.several == 1
    truth, predicted = join.truth_and_predictions(1, None)
    assert (truth.tolist(), predicted.tolist()) == ([1.5], [1.0])


def test_a_request_id_of_several_requests_is_ambiguous_and_memory_stays_bounded(labels, tmp_path):
    read = labels("request_id,kind\n1,yes\nown,no\nagain,no\n")
    paths = [
        log(
            tmp_path / f"{n}.parquet",
            ["1", "own" if n == 1 else "x", "again"],
            [0] * 3,
            [f"p{n}", "no", "no"],
            **probabilities([0.1] * 3),
        )
        for n in range(4)
    ]
    join = join_labels([read], paths)
    assert join.ambiguous == 1
    assert join.versions == [(1, 2)]  # an answer that was given again, to the same request, is one


def test_the_latest_label_counts_and_versions_stay_separate(labels, tmp_path):
    first = labels("request_id,kind\na,no\nb,no\n")
    second = labels("request_id,kind\na,yes\nb,perhaps\n")
    paths = [
        log(tmp_path / "2.parquet", ["a"], [0], ["yes"], version=2, **probabilities([0.7])),
        log(tmp_path / "1.parquet", ["b"], [0], ["yes"], **probabilities([0.6])),
    ]
    join = join_labels([first, second], iter(paths))
    assert join.versions == [(2, 1), (1, 1)]
    assert join.truth_and_predictions(2, ("no", "yes"))[0].tolist() == [1]
    assert join.truth_and_predictions(1, ("no", "yes"))[0].tolist() == [
        2
    ]  # a class that the version does not know
    assert join.truth_and_predictions(1, ("no", "other"))[1].shape == (0, 2)


def test_classes_are_normalized_as_in_training(labels, tmp_path):
    read = labels("request_id,kind\na,1.0\nb, 2\nc,TRUE\n")
    ones = {f"dmls.probability.{label}": [1.0] * 3 for label in ("1", "2", "true")}
    join = join_labels([read], [log(tmp_path / "a.parquet", ["a", "b", "c"], [0] * 3, ["1"] * 3, **ones)])
    assert sorted(join.truth_and_predictions(1, ("1", "2", "true"))[0].tolist()) == [0, 1, 2]


def test_a_class_may_be_a_text_that_is_missing_elsewhere(labels, tmp_path):
    text = "request_id,kind\na,None\nb,mild\nc,NA\n"
    assert labels(text).height == 1
    read = labels(text, not_missing=["None"])
    share = {"dmls.probability.None": [0.5] * 3, "dmls.probability.mild": [0.5] * 3}
    join = join_labels([read], [log(tmp_path / "a.parquet", ["a", "b", "c"], [0] * 3, ["mild"] * 3, **share)])
    assert sorted(join.truth_and_predictions(1, ("None", "mild"))[0].tolist()) == [0, 1]
    assert labels("request_id,kind\na,None\nb,1\n", numbers=True, not_missing=["None"]).height == 1


def test_without_matching_predictions_there_are_no_versions(labels, tmp_path):
    read = labels("request_id,kind\na,no\n")
    foreign = tmp_path / "foreign.parquet"
    pl.DataFrame({"size": [1.0]}).write_parquet(foreign)
    for paths in ([], [foreign], [log(tmp_path / "a.parquet", ["b"], [0], ["no"], **probabilities([0.1]))]):
        join = join_labels([read], paths)
        assert (join.labels, join.frame.height, join.versions) == (1, 0, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,kind\na,1\n", "has no column request_id"),
        ("request_id,target\na,1\n", "has no column kind"),
        ("request_id,kind,kind\na,1,2\n", "more than once"),
        ("request_id,kind,row\na,1,first\n", "invalid row number"),
        ("request_id,kind,row\na,1,-1\n", "invalid row number"),
        ("request_id,kind\na,many\n", "is not a number"),
        ("request_id,kind\n", "no row"),
        ("", "empty"),
    ],
)
def test_an_unusable_file_raises_a_helpful_error(labels, text, words):
    with pytest.raises(DataError, match=words):
        labels(text, numbers=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "request_id;kind;row\na;1,5;0\nb;2;1\n"),
        (
            "labels.jsonl",
            '{"request_id": "a", "kind": "1,5", "row": 0}\n{"request_id": "b", "kind": "2", "row": 1}\n',
        ),
    ],
    ids=["csv", "jsonl"],
)
def test_files_are_written_as_the_data_is(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-16" if name.endswith("csv") else "utf-8")
    european = {"delimiter": ";", "decimal": ",", "encoding": "utf-16", "header": False, "skip_rows": 3}
    frame = read_labels(path, "kind", numbers=True, options=european)
    assert frame.rows() == [("a", 0, "1.5", False), ("b", 1, "2", False)]


def test_parquet_keeps_its_types(tmp_path):
    path = tmp_path / "labels.parquet"
    pl.DataFrame({"request_id": [7, 8], "row": [0, 1], "kind": [1.5, np.nan]}).write_parquet(path)
    frame = read_labels(path, "kind", numbers=True)
    assert frame.rows() == [("7", 0, "1.5", False)]
