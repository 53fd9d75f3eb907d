"""The expectations that a spec and the columns of the data imply."""

from __future__ import annotations

from dmls_core.data.validation.expectations import plan_expectations, read_frame
from dmls_core.settings import DataLimits
from dmls_core.spec import Columns, Expectations, ModelSearch, Spec

CONTENT = "a,b,mixed,y,id\n1,red,1,u,7\n2,blue,x,v,8\n,red,3,v,9\n"


def _plan(tmp_path, content=CONTENT, task="classification", expectations=None, **columns):
    path = tmp_path / "data.csv"
    path.write_text(content)
    spec = Spec(
        task=task,
        models=(ModelSearch(name="random-forest-classifier", hyperparameters={}),),
        n_trials=1,
        columns=Columns(**{"target": "y"} | columns),
        expectations=Expectations(**expectations or {}),
    )
    frame = read_frame(spec, [path], DataLimits())
    found = plan_expectations(spec, frame.roles, frame.facts, frame.missing)
    assert len({(item.column, item.kind) for item in found}) == len(found)
    return {(item.column, item.kind): item for item in found}


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
    assert sorted(found["b", "in_set"].arguments["value_set"]) == ["blue", "red"]
    assert found["b", "pattern"].arguments == {"regex": "^[a-z]+$"}
    assert ("b", "numbers") in found
    assert ("b", "between") not in found
    assert found["id", "missing"].statement == "at most 12.5 % of the values are missing"
    assert ("id", "unique") in found


def test_values_are_found_however_the_data_spells_them(tmp_path):
    content = "a,y\n1.0,0\n01,1\nTrue,1\n x ,0\n"
    found = _plan(tmp_path, content, expectations={"columns": {"a": {"values": [1, True, "x"]}}})
    assert sorted(found["a", "in_set"].arguments["value_set"]) == ["1.0", "True", "x"]


def test_columns_that_are_not_there(tmp_path):
    found = _plan(tmp_path, features=["a", "gone"], expectations={"columns": {"away": {"unique": True}}})
    assert {name for name, kind in found if kind == "exists"} == {"a", "gone", "y", "away"}
    assert ("away", "unique") not in found
