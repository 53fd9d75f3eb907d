"""The request of a prediction: its columns, its values, and the snippets that are not run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dmls_core.data.encoder import CategoryFeature, DateFeature, Encoder, NumberFeature, Target
from dmls_core.data.request_rows import check_columns
from dmls_core.errors import DataError
from dmls_core.web.services.predictions import check_values, sent_row
from dmls_core.web.services.snippets import COMMENTS, make_snippets

ENCODER = Encoder(
    (
        NumberFeature("age", fill=40.0),
        NumberFeature('it\'s "paid" $HOME'),
        CategoryFeature("plan", ("é'", "x\\n")),
    ),
    Target("churned", ("no", "yes")),
)
ROW: dict[str, Any] = {"age": 31.0, 'it\'s "paid" $HOME': None, "plan": "é'"}
PATH = "/dmls/api/v1/predictions/lab/iris"


def snippet(language: str) -> str:
    found = make_snippets(f"http://127.0.0.1:1{PATH}", ROW)
    return next(each.code for each in found if each.language == language)


def test_the_row_has_numbers_and_null_for_missing_values():
    columns = {"age": ["31"], 'it\'s "paid" $HOME': ["NA"], "plan": ["é'"]}
    assert sent_row(columns, ENCODER) == ROW


def test_every_snippet_shows_how_to_give_the_request_an_id():
    for each in make_snippets(f"http://127.0.0.1:1{PATH}", ROW):
        (line,) = (line for line in each.code.splitlines() if "X-Request-ID" in line)
        assert line.lstrip().startswith(COMMENTS[each.language])
        assert "order-17" in line
        assert "to report the true value later" in line


def test_power_query_has_no_unescaped_quote_and_no_escape_sequence():
    """Power Query runs in Excel and Power BI only: this checks the literal's rules."""
    code = snippet("Power Query")
    literal = code.partition('Body = Text.ToBinary("')[2].partition('"),\n')[0]
    assert '"' not in literal.replace('""', "")
    assert json.loads(literal.replace('""', '"')) == [ROW]


def test_a_long_row_is_in_a_file_and_the_snippets_show_how_it_begins():
    row = {f"gene_{number}": number / 7 for number in range(10_000)}
    for each in make_snippets(f"http://127.0.0.1:1{PATH}", row):
        assert len(each.code) < 1_000, each.language
        assert 'all 10,000 columns: [{"gene_0": 0.0, "gene_1": 0.14' in each.code.splitlines()[0]
        assert "row.json" in "".join(each.code.splitlines()[1:])
        assert "row.json" in each.needs


def test_absent_and_unknown_columns_are_refused_all_at_once():
    with pytest.raises(DataError) as raised:
        check_columns(
            {"age": 31, "Plan": "x", "churned": "no", "color": "red"},
            ENCODER.feature_names,
            ENCODER.target.name,
            strict=True,
        )
    issues = {issue.message: issue.hint for issue in raised.value.issues}
    assert issues["column 'plan' is absent"] == "rename 'Plan'"
    assert "column 'it\\'s \"paid\" $HOME' is absent" in issues
    assert issues["column 'churned' is what the model predicts"] == "remove it"
    assert "the model has no column 'color'" in issues


def test_values_outside_of_training_are_warnings_and_missing_ones_are_echoed():
    paid = 'it\'s "paid" $HOME'
    encoder = ENCODER.with_ranges({"age": [18.0, 80.0]})
    warnings, imputed = check_values({"age": "-5", paid: None, "plan": "gold"}, encoder)
    assert [(found.column, found.message) for found in warnings] == [
        ("age", "-5 is below the range of the training data, 18 to 80"),
        ("plan", "'gold' does not occur in the training data"),
    ]
    assert [found.column for found in imputed] == [paid]
    _, imputed = check_values({"age": None, paid: 1, "plan": None}, ENCODER)
    assert [found.message for found in imputed] == [
        "missing, replaced by 40",
        "missing, which the model treats as a category of its own",
    ]
    assert check_values({"age": 18, paid: 1, "plan": "é'"}, encoder) == ([], [])
    with pytest.raises(DataError, match="old"):
        check_values({"age": "old", paid: 1, "plan": "é'"}, ENCODER)


def test_a_text_that_is_not_missing_is_sent_and_known():
    feature = CategoryFeature("grade", ("Mild", "None"), not_missing=("None",))
    encoder = Encoder((NumberFeature("age"), feature), Target("y"))
    row = {"age": "None", "grade": "None"}
    assert sent_row({name: [value] for name, value in row.items()}, encoder) == {"age": None, "grade": "None"}
    warnings, imputed = check_values(row, encoder)
    assert (warnings, [found.column for found in imputed]) == ([], ["age"])
    assert [found.column for found in check_values({"age": 1, "grade": "NA"}, encoder)[1]] == ["grade"]


def test_dates_outside_of_training_are_warnings():
    encoder = Encoder((DateFeature("sold", "day-first", range=(19782.0, 19783.0)),), Target("y"))
    assert check_values({"sold": "1.3.2024"}, encoder) == ([], [])
    warnings, _ = check_values({"sold": "2.3.2024"}, encoder)
    expected = "2.3.2024 is after the dates of the training data, 2024-02-29 to 2024-03-01"
    assert [found.message for found in warnings] == [expected]
    _, imputed = check_values({"sold": None}, encoder)
    assert [found.message for found in imputed] == ["missing, which the model handles itself"]
    with pytest.raises(DataError, match="column 'sold', row 1: 'soon' is not a day-first date"):
        check_values({"sold": "soon"}, encoder)
    assert sent_row({"sold": ["1.3.2024"]}, encoder) == {"sold": "1.3.2024"}
