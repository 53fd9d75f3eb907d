from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dmls_core import sandbox
from dmls_core.data.formats.data_files import ColumnIssue
from dmls_core.data.table.columns import read_feature
from dmls_core.errors import DataError
from dmls_core.intake.csv_check import check_csv_head
from dmls_core.intake.schema_inference import (
    FileSchema,
    InferredColumn,
    Sample,
    infer_file_schema,
    infer_footer_schema,
    infer_schema,
    parquet_tail,
    read_sample,
)
from dmls_core.models import CATALOGUE, load_spec
from dmls_core.settings import DataLimits, IntakeLimits
from dmls_core.spec.definitions import AUTO
from dmls_core.spec.toml_io import toml_text

ROWS = 60


def csv_of(columns: dict[str, list[Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue().encode()


def look(columns: dict[str, list[Any]], *, complete: bool = True) -> FileSchema:
    return infer_schema("a.csv", read_sample("a.csv", csv_of(columns), complete=complete))


def kinds(schema: FileSchema) -> dict[str, str]:
    return {column.name: column.kind for column in schema.columns}


def column(schema: FileSchema, name: str) -> InferredColumn:
    return next(found for found in schema.columns if found.name == name)


draw = random.Random(3)
NUMBERS = [round(draw.gauss(0, 5), 3) for _ in range(ROWS)]
CLASSES = [draw.choice(["red", "green", "blue"]) for _ in range(ROWS)]


def test_each_kind_of_column() -> None:
    columns = {
        "customer_id": [f"c-{row}" for row in range(ROWS)],
        "row": list(range(ROWS)),
        "size": NUMBERS,
        "doors": [draw.choice([2, 3, 4]) for _ in range(ROWS)],
        "colour": CLASSES,
        "remark": [f"remark {draw.random()} of a user" for _ in range(ROWS)],
        "bought": [f"2024-01-{1 + row % 28:02}" for row in range(ROWS)],
        "when": [f"{1 + row % 28}.3.2024 10:{row:02}" for row in range(ROWS)],
        "country": ["AT"] * ROWS,
        "fax": ["", "NA", "null"] * (ROWS // 3),
        "member": [draw.choice(["true", "False"]) for _ in range(ROWS)],
        "price": [abs(number) * 10 for number in NUMBERS],
    }

    found = look(columns)

    assert kinds(found) == {
        "customer_id": "id",
        "row": "id",
        "size": "number",
        "doors": "code",
        "colour": "category",
        "remark": "text",
        "bought": "date",
        "when": "date",
        "country": "constant",
        "fax": "empty",
        "member": "category",
        "price": "number",
    }
    assert (found.guess.column.name, found.task) == ("price", "regression")
    assert found.document["columns"] == {
        "target": "price",
        "features": ["size", "doors", "colour", "bought", "when", "member"],
        "categorical": ["colour", "member"],
        "dates": ["bought", "when"],
        "date_order": "day-first",
    }


def test_missing_values_and_classes_are_counted() -> None:
    found = look({"size": ["", *NUMBERS[1:]], "kind": ["NA", "a", *(["a"] * 30), *(["b"] * 28)]})

    assert column(found, "size").missing == 1
    assert column(found, "kind").missing == 1
    assert column(found, "kind").top == (("a", 31), ("b", 28))
    assert found.preview[0] == (None, None)
    assert found.rows == found.seen == ROWS
    assert sum(column(found, "size").histogram) == ROWS - 1


@pytest.mark.parametrize(
    ("texts", "kind", "note"),
    [
        (["02138", "2138", "10001"], "category", "Read as categories, since numbers lack"),
        ([f"{row:05}" for row in range(7, 7 + 9 * ROWS, 9)], "number", "Read as numbers, without their"),
        ([f"{row:05}" for row in range(ROWS)], "id", ""),
        (["00.5", "01", "2"], "number", ""),
        (["0", "1", "2"], "code", ""),
    ],
)
def test_leading_zeros_do_not_vanish_without_a_word(texts: list[str], kind: str, note: str) -> None:
    found = look({"zip": (texts * ROWS)[:ROWS], "size": NUMBERS, "price": NUMBERS[::-1]})

    assert kinds(found)["zip"] == kind
    assert ("zip" in found.document["columns"].get("categorical", ())) == (kind == "category")
    assert [text for text in found.notes if "leading zeros" in text] == [
        text for text in found.notes if note and text.startswith(note) and f"zip ({texts[0]})" in text
    ]
    assert any("leading zeros" in text for text in found.notes) == bool(note)


MANY = "too many distinct values to be a category by default: name it in [columns] categorical to use it"


@pytest.mark.parametrize(
    ("distinct", "rows", "reason"),
    [
        (10, 10, ""),
        (30, 60, ""),
        (31, 60, "free text"),
        (120, 3_000, ""),
        (255, 1_500, ""),
        (256, 1_500, MANY),
    ],
)
def test_the_draft_and_the_training_call_the_same_texts_categories(
    distinct: int, rows: int, reason: str
) -> None:
    texts = [f"code {row % distinct}" for row in range(rows)]

    found = look({"code": texts, "a": list(range(0, 3 * rows, 3)), "target": ["x", "y"] * (rows // 2)})

    assert (column(found, "code").kind, column(found, "code").reason) == (
        "text" if reason else "category",
        reason,
    )
    trained = read_feature(pl.Series(texts, dtype=pl.Categorical()), DataLimits(), categorical=False)
    assert isinstance(trained, ColumnIssue) == bool(reason)


def test_a_target_of_texts_is_a_class() -> None:
    texts = [f"code {row}" for row in range(300)]
    content = csv_of({"a": list(range(0, 900, 3)), "code": texts})

    found = infer_schema("a.csv", read_sample("a.csv", content, complete=True), "code")

    assert (column(found, "code").kind, found.task) == ("text", "classification")


@pytest.mark.parametrize(
    ("columns", "target", "task"),
    [
        ({"a": NUMBERS, "species": CLASSES}, "species", "classification"),
        ({"label": CLASSES, "a": NUMBERS, "b": NUMBERS}, "label", "classification"),
        ({"a": NUMBERS, "churned": [0, 1] * 30, "zip": list(range(1000, 1060))}, "churned", "classification"),
        ({"a": NUMBERS, "has_left": ["yes", "no"] * 30, "b": NUMBERS}, "has_left", "classification"),
        ({"a": CLASSES, "b": NUMBERS}, "b", "regression"),
        ({"a": NUMBERS, "b": list(range(0, 3 * ROWS, 3))}, "b", "regression"),
        ({"class": CLASSES, "id": list(range(ROWS)), "a": NUMBERS}, "class", "classification"),
        ({"a": NUMBERS, "y": NUMBERS, "note": [f"n{row}" for row in range(ROWS)]}, "y", "regression"),
    ],
)
def test_target_and_task(columns: dict[str, list[Any]], target: str, task: str) -> None:
    found = look(columns)

    assert (found.guess.column.name, found.task) == (target, task)
    assert all(CATALOGUE[name].task == task for name in AUTO[found.document["model"]])


PASSENGERS = {
    "class": ["first", "second", "third"] * 20,
    "pclass": [1, 2, 3] * 20,
    "fare_eur": NUMBERS,
    "fare_usd": [1.1 * number + 2 for number in NUMBERS],
    "deck": ["A", "B", "C", "D", "E", "F"] * 10,
    "age": [random.Random(row).randint(1, 80) for row in range(ROWS)],
}


@pytest.mark.parametrize(
    ("columns", "certain"),
    [
        ({"a": NUMBERS, "species": CLASSES}, True),
        ({"a": NUMBERS, "b": NUMBERS[::-1], "income": [number**2 for number in NUMBERS]}, False),
        ({"a": NUMBERS, "result": CLASSES, "b": NUMBERS[::-1]}, False),
        ({"a": NUMBERS, "b": CLASSES}, False),
        ({"x": NUMBERS, "y": NUMBERS[::-1], "height": [number**2 for number in NUMBERS]}, False),
        ({"class": CLASSES, "a": NUMBERS, "outcome": [0, 1] * 30}, True),
        (PASSENGERS, False),
        (PASSENGERS | {"survived": CLASSES, "alive": [text.upper() for text in CLASSES]}, False),
    ],
)
def test_a_guess_is_certain_only_without_a_rival(columns: dict[str, list[Any]], certain: bool) -> None:
    found = look(columns)

    assert found.guess.certain is certain
    assert found.guess.likely[0] == found.guess.column.name


def test_a_column_that_is_mostly_empty_is_not_taken_for_the_target() -> None:
    sparse = ["" if row > 2 else row for row in range(ROWS)]
    named = {"a": NUMBERS, "b": NUMBERS[::-1], "income": sparse}
    unlabelled = ["" if row % 2 else text for row, text in enumerate(CLASSES)]

    assert look(named).guess.likely == ("a", "b", "income")
    assert look({"a": NUMBERS, "label": unlabelled, "b": NUMBERS[::-1]}).guess.likely[0] == "label"


def test_a_target_that_nobody_chose_is_given_away_by_nothing() -> None:
    content = csv_of({"a": NUMBERS, "grade": PASSENGERS["class"], "deck": PASSENGERS["deck"]})
    sample = read_sample("a.csv", content, complete=True)
    note = "deck gives grade away: take it out of the features, unless it is known before grade is."

    guessed, chosen = infer_schema("a.csv", sample), infer_schema("a.csv", sample, "grade")

    assert (guessed.guess.column.name, guessed.guess.certain, guessed.notes) == ("grade", False, ())
    assert chosen.notes == (note,)


def test_a_coordinate_is_not_taken_for_the_target() -> None:
    found = look({"x": NUMBERS, "y": NUMBERS[::-1], "height": [number**2 for number in NUMBERS]})

    assert found.guess.column.name == "height"


def test_columns_that_give_others_away_are_found() -> None:
    found = {(one.column, one.other, one.both) for one in look(PASSENGERS).guess.relations}

    assert found == {
        ("class", "pclass", True),
        ("fare_eur", "fare_usd", True),
        ("deck", "class", False),
        ("deck", "pclass", False),
    }


def test_columns_that_agree_by_chance_are_not_reported() -> None:
    rare = [*([0] * (ROWS - 3)), 1, 1, 1]
    groups = [f"g{row // 3}" for row in range(ROWS)]

    assert look({"a": NUMBERS, "group": groups, "fraud": rare}).guess.relations == ()


def test_missing_numbers_relate_to_nothing() -> None:
    sparse = ["" if row > 5 else row * 1.5 for row in range(ROWS)]

    assert look({"a": sparse, "b": NUMBERS, "target": CLASSES}).guess.relations == ()


def test_a_wide_table_is_compared_with_its_likely_targets_only() -> None:
    columns = {
        f"c{number}": [random.Random(number * ROWS + row).random() for row in range(ROWS)]
        for number in range(120)
    }
    found = look(
        columns
        | {"c5": columns["c4"], "copy": [2 * value for value in columns["c7"]], "target": columns["c7"]}
    )

    assert {(one.column, one.other) for one in found.guess.relations} == {
        ("c7", "target"),
        ("c7", "copy"),
        ("copy", "target"),
    }


def test_the_target_can_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(csv_of(PASSENGERS))

    found = infer_file_schema(tmp_path / "a.csv", "age")

    assert (found["target"], found["task"], found["certain"]) == ("age", "regression", True)
    with pytest.raises(DataError, match="column 'aged' is not in the data"):
        infer_file_schema(tmp_path / "a.csv", "aged")


def test_uneven_classes_ask_for_a_balanced_metric() -> None:
    """Also of a column that is not the guessed target: the form takes it from there."""
    rare = ["rare"] * 3 + ["often"] * (ROWS - 3)
    found = look({"a": NUMBERS, "other": rare, "class": rare})

    assert found.document["search"] == {"metric": "balanced_accuracy"}
    number, other, _ = (column["as_target"] for column in found.as_json()["columns"])
    assert number == {"task": "regression", "model": "auto-regressor", "metric": ""}
    assert other == {
        "task": "classification",
        "model": "auto-classifier",
        "metric": "balanced_accuracy",
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"a,b\n", "no rows"),
        (b"a;b\n1;2\n", "no column can be the target"),
        (b"a;b\n1;2;3\n", "too many cells|has 3 fields"),
        (b"a,a\n1,2\n", "2 columns are named"),
        (b",b\n1,2\n", "no name"),
        (b"a,b\n1,2,3\n", "too many cells"),
        (b"a,b\n1\n", "too few cells.*the file is incomplete"),
        (b"a,b\n1,2\n1\n1,2\n", "too few cells.*is a comma missing"),
        (b'a,b\n"1,2\n', "cannot be read as CSV"),
        (b"PK\x03\x04rest", "zip archive"),
        (bytes(range(256)), "binary"),
        (b"a\n1\n2\n", "no column is left"),
        (b"a,b\nx,x\nx,x\n", "no column can be the target"),
        (b"a\tb" * 400 + b",b\n1,2\n", "a spec cannot contain"),
        (b"a,b\x01" + b"b" * 90 + b"\n1,2\n3,4\n", "a spec cannot contain"),
        (b",".join(b"c%d" % number for number in range(101)) + b"\n", "too many columns"),
    ],
)
def test_a_hostile_csv_gets_a_clear_error(content: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        infer_schema("a.csv", read_sample("a.csv", content, complete=True, limits=IntakeLimits(columns=100)))


def test_a_file_of_another_ending_is_refused() -> None:
    with pytest.raises(DataError, match="must end in"):
        read_sample("a.doc", b"", complete=True)


@pytest.fixture
def one_child(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have one child process read what otherwise a hundred would, each of which imports its libraries."""
    with sandbox.Worker() as worker:
        monkeypatch.setattr(sandbox, "run", worker.call)
        yield


@pytest.mark.usefixtures("one_child")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(b"\n", True, "a.csv")
@given(st.binary(max_size=300), st.booleans(), st.sampled_from(["a.csv", "a.parquet"]))
def test_no_bytes_raise_anything_else(content: bytes, complete: bool, file: str) -> None:
    for head in (content, b"PAR1" + content + b"PAR1", b"a,b\n" + content):
        try:
            columns = infer_schema(file, read_sample(file, head, complete=complete)).columns
        except DataError as error:
            columns = error.issues
        assert columns


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)
CELLS = st.one_of(
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["a", "b", "yes", "no", "", "NA", "2024-01-01", "1_000", "inf"]),
    TEXT,
)


@given(st.data())
def test_every_draft_passes_admission(data: st.DataObject) -> None:
    names = data.draw(st.lists(TEXT, min_size=2, max_size=6, unique_by=str.strip))
    rows = data.draw(st.integers(1, 30))
    columns = {
        name: data.draw(st.lists(CELLS, min_size=rows, max_size=rows), label=f"column {number}")
        for number, name in enumerate(names)
    }
    content = csv_of(columns)
    try:
        found = infer_schema("a.csv", read_sample("a.csv", content, complete=True))
    except DataError:
        return  # see the tests above

    spec = load_spec(toml_text(found.document).encode())

    assert spec.task == found.task
    assert spec.columns.target == found.guess.column.name
    assert check_csv_head("a.csv", content, spec, complete=True, max_columns=100) == []


FRAME = pl.DataFrame(
    {
        "size": NUMBERS,
        "colour": CLASSES,
        "sold": pl.Series([0] * ROWS).cast(pl.Date),
        "parts": [[1, 2]] * ROWS,
        "ok": [True, None, False] * (ROWS // 3),
    }
)


def parquet_of(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_parquet(out)
    return out.getvalue()


def test_a_parquet_file() -> None:
    found = infer_schema("a.parquet", read_sample("a.parquet", parquet_of(FRAME), complete=True))

    assert kinds(found) == {
        "size": "number",
        "colour": "category",
        "sold": "date",
        "parts": "unusable",
        "ok": "category",
    }
    assert (found.rows, found.seen, found.guess.column.name) == (ROWS, ROWS, "ok")
    assert column(found, "ok").missing == ROWS // 3
    assert load_spec(toml_text(found.document).encode()).columns.target == "ok"


def test_a_parquet_file_that_makes_its_reader_panic(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException("called `Option::unwrap()` on a `None` value")

    content = parquet_of(FRAME)
    monkeypatch.setattr(pl.LazyFrame, "collect", panic)
    with pytest.raises(DataError, match=r"^a\.parquet: the file cannot be read as Parquet"):
        read_sample("a.parquet", content, complete=True)


def deep_parquet() -> bytes:
    """Return a Parquet file whose schema nests so deeply that reading it overflows the stack."""
    # Thrift's compact form of a schema: a root, groups with one child each, a column of integers.
    groups = 100_000 * b"\x35\0\x18\x01a\x15\x02\0"
    schema = b"\x48\x01m\x15\x02\0" + groups + b"\x15\2\x25\0\x18\1x\0"
    footer = b"\x15\x02\x19\xfc\xa2\x8d\x06" + schema + b"\x16\x02\x19\x0c\0"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_a_parquet_file_that_crashes_its_reader_is_an_error_of_the_user(tmp_path: Path) -> None:
    whole = parquet_of(FRAME)
    (tmp_path / "a.parquet").write_bytes(whole)
    expected = infer_schema("a.parquet", read_sample("a.parquet", whole, complete=True)).as_json()
    assert infer_file_schema(tmp_path / "a.parquet") == json.loads(json.dumps(expected))
    deep = deep_parquet()
    with pytest.raises(DataError):
        infer_footer_schema("a.parquet", deep, len(deep))
    (tmp_path / "a.parquet").write_bytes(deep)
    with pytest.raises(DataError):
        infer_file_schema(tmp_path / "a.parquet")


def test_a_file_on_disk(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(parquet_of(FRAME))
    (tmp_path / "a.csv").write_text("a,y\n1,u\n2,v\n3,v\n")

    assert infer_file_schema(tmp_path / "a.parquet")["target"] == "ok"
    assert infer_file_schema(tmp_path / "a.csv")["target"] == "y"


@pytest.mark.parametrize("kind", [pl.Datetime("us"), pl.Datetime("us", "UTC"), pl.Duration("ms")], ids=str)
def test_a_date_out_of_range_in_a_parquet_file_is_an_error_of_the_user(kind: pl.DataType) -> None:
    content = parquet_of(pl.DataFrame({"when": [2**62], "ok": ["a"]}).with_columns(pl.col("when").cast(kind)))
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_sample("a.parquet", content, complete=True)


def test_the_end_of_a_parquet_file_shows_its_columns() -> None:
    whole = parquet_of(FRAME)

    found = infer_schema("a.parquet", parquet_tail("a.parquet", whole[-8_000:], len(whole)))

    assert (found.rows, found.seen, found.preview) == (ROWS, 0, ())
    assert kinds(found)["sold"] == "date"
    assert load_spec(toml_text(found.document).encode()).columns.features


@pytest.mark.parametrize(
    "tail", [b"", b"no", b"\xff\xff\xff\x7fPAR1", b"\x00" * 40 + b"\x10\x00\x00\x00PAR1"]
)
def test_what_is_no_end_of_a_parquet_file(tail: bytes) -> None:
    with pytest.raises(DataError):
        parquet_tail("a.parquet", tail, 1_000_000)


def test_a_column_of_a_sample_without_rows_is_told_by_its_type() -> None:
    found = infer_schema("a.parquet", Sample(("a", "b"), ((), ()), False, 5, ("Float64", "Boolean")))

    assert kinds(found) == {"a": "number", "b": "category"}


def test_leaks_are_those_of_a_run() -> None:
    tips = [round(abs(number), 2) for number in NUMBERS]
    fares = [float(draw.randint(5, 60)) for _ in range(ROWS)]
    totals = [fare + tip for fare, tip in zip(fares, tips, strict=True)]
    taxi = look({"fare": fares, "tip": tips, "colour": CLASSES, "total": totals})
    assert "fare and tip together give total away" in taxi.guess.totals["total"]
    assert taxi.guess.totals["total"] not in taxi.notes  # it is not the target for sure
    named = infer_schema(
        "a.csv", read_sample("a.csv", csv_of({"t": tips, "f": fares, "y": totals}), complete=True), "y"
    )
    assert "t and f together give y away" in " ".join(named.notes)
    illness = [draw.choice(["None", "Mild"]) for _ in range(ROWS)]
    code = [{"None": "N0", "Mild": "M1"}[one] for one in illness]
    content = csv_of({"code": code, "size": NUMBERS, "diagnosis": illness})
    kept = infer_schema("a.csv", read_sample("a.csv", content, complete=True, keys={"not_missing": ["None"]}))
    assert [one.message for one in kept.guess.relations] == [
        "code and diagnosis hold the same information: take one of them out of the features."
    ]
