"""The expectations that a spec and the columns of the data imply, and what the data says to them."""

from __future__ import annotations

import polars as pl
import pytest

from dmls_core.data.validation.checks import check
from dmls_core.data.validation.expectations import plan_expectations
from dmls_core.data.validation.facts import gather_facts
from dmls_core.errors import DataError
from dmls_core.settings import DataLimits
from dmls_core.spec import ColumnExpectation, Columns, Expectations, ModelSearch, Spec
from dmls_core.spec.data_table import Data

CONTENT = "a,b,mixed,y,id\n1,red,1,u,7\n2,blue,x,v,8\n,red,3,v,9\n"


def _checked(tmp_path, content=CONTENT, task="classification", expectations=None, not_missing=(), **columns):
    """Return each expectation of the data and its result."""
    parts = content if isinstance(content, list) else [content]
    paths = [tmp_path / f"data{number}.csv" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_text(part)
    spec = Spec(
        task=task,
        models=(ModelSearch(name="random-forest-classifier", hyperparameters={}),),
        n_trials=1,
        columns=Columns(**{"target": "y"} | columns),
        expectations=Expectations(**expectations or {}),
        data=Data(not_missing=not_missing),
    )
    table = gather_facts(spec, paths, DataLimits())
    found = plan_expectations(spec, table)
    assert len({(item.column, item.expectation_type) for item in found}) == len(found)
    return {(item.column, item.expectation_type): (item, check(item, table)) for item in found}


def _plan(*args, **options):
    return {key: item for key, (item, _) in _checked(*args, **options).items()}


def _failed(*args, **options):
    return {
        key: result.describe(item.expectation_type)
        for key, (item, result) in _checked(*args, **options).items()
        if not result.success
    }


def test_what_every_spec_implies(tmp_path):
    found = _plan(tmp_path, drop=["id"])
    assert set(found) == {
        ("", "row_count"),
        *((name, "exists") for name in ("a", "b", "mixed", "y")),
        *((name, "missing") for name in ("a", "b", "mixed", "y")),
        ("a", "numbers"),
        ("mixed", "numbers"),
        ("y", "unique_count"),
    }
    assert found["", "row_count"].statement == "there is at least 1 row"
    assert found["y", "missing"].arguments == {"mostly": 0.5}
    assert found["a", "missing"].statement == "at most 95 % of the values are missing"


def test_a_declared_category_need_not_be_numbers(tmp_path):
    assert ("mixed", "numbers") not in _plan(tmp_path, categorical=["mixed", "a"])


def test_a_category_with_bounds_is_looked_at_as_numbers(tmp_path):
    found = _plan(tmp_path, categorical=["a"], expectations={"columns": {"a": {"min": 1}}})
    assert {("a", "numbers"), ("a", "between")} <= set(found)


def test_a_regressors_target_is_numbers(tmp_path):
    assert ("y", "numbers") in _plan(tmp_path, task="regression")


def test_what_the_spec_adds(tmp_path):
    found = _plan(
        tmp_path,
        drop=["id"],
        expectations={
            "min_rows": 2,
            "max_rows": 1000,
            "max_missing": 0.0,
            "columns": {
                "a": {"min": 0, "max": 2.5, "max_missing": 0.5, "values": [1, 2]},
                "b": {"values": ["red", "blue", "green"], "pattern": "^[a-z]+$", "min": 1},
                "id": {"unique": True, "max_missing": 0.125},
            },
        },
    )
    assert found["", "row_count"].arguments == {"min_value": 2, "max_value": 1000}
    assert found["", "row_count"].statement == "there are at least 2 rows and at most 1,000"
    assert found["a", "between"].statement == "every value is at least 0 and at most 2.5"
    assert found["a", "missing"].arguments == {"mostly": 0.5}
    assert found["a", "in_set"].arguments == {"value_set": [1, 2]}
    assert found["y", "missing"].statement == "no value is missing"
    assert found["b", "in_set"].arguments == {"value_set": ["red", "blue", "green"]}
    assert found["b", "pattern"].arguments == {"regex": "^[a-z]+$"}
    assert ("b", "numbers") in found
    assert ("b", "between") not in found
    assert found["id", "missing"].statement == "at most 12.5 % of the values are missing"
    assert ("id", "unique") in found


def test_values_are_found_however_the_data_spells_them(tmp_path):
    content = "a,y\n1.0,0\n01,1\nTrue,1\n x ,0\n"
    failed = _failed(tmp_path, content, expectations={"columns": {"a": {"values": [1, True, "x"]}}})
    assert failed == {("a", "in_set"): "1 of 4 values do not meet it, such as 01"}


def test_text_among_numbers(tmp_path):
    found = _failed(tmp_path, drop=["id"])
    assert found == {("mixed", "numbers"): "1 of 3 values do not meet it, such as x"}
    lines = "a,y\n" + "1,u\n2,v\n" * 3
    assert _failed(tmp_path, lines + " n/a ,u\nNaN,v\n,u\n 4 ,u\n") == {}
    assert _failed(tmp_path, lines + "?,u\none,v\n?,v\n") == {
        ("a", "numbers"): "3 of 9 values do not meet it, such as ?, one"
    }


def test_missing_values_are_counted_by_rows_that_have_any(tmp_path):
    content = "a,b,y\n1,,u\n,,v\n\n\n,NA,v\n"
    found = _checked(tmp_path, content, expectations={"columns": {"a": {"max_missing": 0.5}}})
    assert {key: result.describe(key[1]) for key, (_, result) in found.items() if key[1] == "missing"} == {
        ("a", "missing"): "2 of 3 are missing",
        ("b", "missing"): "3 of 3 are missing, unless [data] not_missing says that 'NA' is a value",
        ("y", "missing"): "0 of 3 are missing",
    }
    assert found["", "row_count"][1].observed == 3


def test_several_files_are_one_table(tmp_path):
    files = ["a,y\n1,u\n2,v\n", "a,y\n2,u\nx,v\n"]
    assert _failed(tmp_path, files, expectations={"columns": {"a": {"unique": True}}}) == {
        ("a", "numbers"): "1 of 4 values do not meet it, such as x",
        ("a", "unique"): "2 of 4 values do not meet it, such as 2",
    }


def test_a_target_of_one_class(tmp_path):
    assert _failed(tmp_path, "a,y\n1,u\n2,u\n") == {("y", "unique_count"): "there are 1"}
    assert _failed(tmp_path, "a,y\n1,2\n2,3\n3,x\n", task="regression") == {
        ("y", "numbers"): "1 of 3 values do not meet it, such as x"
    }


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_labels_that_are_the_same_in_single_precision(tmp_path, task):
    assert _failed(tmp_path, "a,y\n1,123456781\n2,123456782\n", task=task) == {}


LARGE = 2**53


@pytest.mark.parametrize("first", [LARGE, 10**20], ids=["64 bits", "128 bits"])
def test_large_integers_are_distinct(tmp_path, first):
    lines = "a,y\n" + "".join(f"{first + at},{'uv'[at % 2]}\n" for at in range(4))
    expectations = {"columns": {"a": {"unique": True}}}
    assert _failed(tmp_path, lines, expectations=expectations) == {}
    assert _failed(tmp_path, f"{lines}{first},v\n", expectations=expectations) == {
        ("a", "unique"): f"2 of 5 values do not meet it, such as {first}"
    }


@pytest.mark.parametrize(
    ("expectation", "name"),
    [({"max": LARGE}, "between"), ({"values": [LARGE - 1, LARGE]}, "in_set"), ({"max": 1e300}, "")],
)
def test_large_integers_are_compared_exactly(tmp_path, expectation, name):
    lines = f"a,y\n{LARGE - 1},u\n{LARGE},v\n{LARGE + 1},v\n"
    assert _failed(tmp_path, lines, expectations={"columns": {"a": expectation}}) == (
        {("a", name): f"1 of 3 values do not meet it, such as {LARGE + 1}"} if name else {}
    )


def test_a_float32_is_the_number_that_it_is_written_as(tmp_path):
    path = tmp_path / "data.parquet"
    pl.DataFrame({"a": [0.1, 0.7], "y": ["u", "v"]}, {"a": pl.Float32, "y": pl.String}).write_parquet(path)
    spec = Spec(
        task="classification",
        models=(ModelSearch(name="random-forest-classifier", hyperparameters={}),),
        n_trials=1,
        columns=Columns(target="y"),
        expectations=Expectations(columns={"a": ColumnExpectation(values=(0.1, 0.7), max=0.7)}),
    )
    table = gather_facts(spec, [path], DataLimits())
    assert [one for one in plan_expectations(spec, table) if not check(one, table).success] == []


def test_parquet(tmp_path):
    path = tmp_path / "data.parquet"
    frame = {"a": [1.5, None, float("nan")], "b": [True, False, None], "y": ["u", "v", None]}
    pl.DataFrame(frame).write_parquet(path)
    spec = Spec(
        task="classification",
        models=(ModelSearch(name="random-forest-classifier", hyperparameters={}),),
        n_trials=1,
        columns=Columns(target="y"),
    )
    table = gather_facts(spec, [path], DataLimits())
    assert table.rows == 3
    assert {name: facts.missing for name, facts in table.columns.items()} == {"a": 2, "b": 1, "y": 1}
    assert [name for name, facts in table.columns.items() if facts.numeric] == ["a"]


def test_too_many_rows(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(CONTENT)
    spec = Spec(
        task="classification",
        models=(ModelSearch(name="random-forest-classifier", hyperparameters={}),),
        n_trials=1,
        columns=Columns(target="y"),
    )
    with pytest.raises(DataError, match="too many rows"):
        gather_facts(spec, [path], DataLimits(rows=2))


def test_columns_that_are_not_there(tmp_path):
    found = _plan(tmp_path, features=["a", "gone"], expectations={"columns": {"away": {"unique": True}}})
    assert {name for name, kind in found if kind == "exists"} == {"a", "gone", "y", "away"}
    assert ("away", "unique") not in found


def test_texts_that_are_not_missing_count_as_values(tmp_path):
    content = "a,b,y\n" + "1,NA,None\nNA,NA,None\n3,NA,None\n4,x,u\n5,NA,v\n" * 5
    expected = {"columns": {"b": {"values": ["x", "NA"], "max_missing": 0.0}, "a": {"max_missing": 0.2}}}
    said = "unless [data] not_missing says that"
    assert _failed(tmp_path, content, expectations=expected) == {
        ("b", "missing"): f"20 of 25 are missing, {said} 'NA' is a value",
        ("y", "missing"): f"15 of 25 are missing, {said} 'None' is a value",
    }
    assert _failed(tmp_path, content, expectations=expected, not_missing=("NA", "None")) == {}
    expected["columns"]["b"]["values"] = ["x"]
    assert _failed(tmp_path, content, expectations=expected, not_missing=("NA", "None")) == {
        ("b", "in_set"): "20 of 25 values do not meet it, such as NA"
    }
