"""Pages are self-contained: values are escaped and only given scripts may run."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from base64 import b64encode

import pytest

from dmls_core.html import Matrix, TableData, create_environment, formats


@pytest.fixture
def render(tmp_path):
    def render(text: str, **values) -> str:
        (tmp_path / "t.html").write_text('{% import "components.html" as html %}' + text)
        return create_environment(tmp_path).get_template("t.html").render(values)

    return render


def test_results_in_words():
    assert [formats.counted(number, "trial") for number in (0, 1, 2_000)] == [
        "0 trials",
        "1 trial",
        "2,000 trials",
    ]
    members = [{"trial": trial, "weight": 0.5, "model": "lightgbm-regressor"} for trial in (3, 5)]
    result = {
        "model": "lightgbm-regressor",
        "best_trial": 3,
        "best_params": {"n_estimators": 500, "max_depth": 4},
    }
    assert formats.describe_model(result) == "lightgbm-regressor"
    ensemble = result | {"ensemble": {"members": members}}
    assert formats.describe_model(ensemble) == "the mean of 2 trials: 3 (weight 0.50), 5 (weight 0.50)"

    trial = {"n_estimators": 126, "max_depth": 4}
    assert "Trial 3 had n_estimators = 126. The last fit" in formats.describe_refit(
        result | {"trial_params": trial}
    )
    assert not formats.describe_refit(ensemble | {"trial_params": trial})
    assert not formats.describe_refit(result | {"trial_params": {"max_depth": 4}})
    assert not formats.describe_refit(result)  # of an earlier release


def test_jinja_is_not_imported_before_a_page_is_rendered():
    code = "import sys, dmls_core.html; sys.exit('jinja2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_policy_allows_the_scripts_of_the_page_by_hash(tmp_path, monkeypatch):
    from dmls_core import html

    (tmp_path / "t.html").write_text('{% extends "base.html" %}{% block content %}{{ value }}{% endblock %}')
    monkeypatch.setattr(html, "_environment", lambda: create_environment(tmp_path))
    page = html.render_page("t.html", "<title>", value="<b>")
    assert "script" not in page
    assert "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'" in page
    assert "<title>&lt;title&gt;</title>" in page
    assert "&lt;b&gt;" in page
    page = html.render_page("t.html", "t", scripts=["run(1 < 2);\r\n"], value="")
    digest = b64encode(hashlib.sha256(b"run(1 < 2);\n").digest()).decode()
    assert f"script-src 'sha256-{digest}'; style-src" in page
    assert "<script>run(1 < 2);\n</script>" in page


def test_a_table_aligns_numbers_and_escapes_texts(render):
    table = TableData(
        ["name", "value", "note"], [["a<b", 1234, None], ["c", None, formats.Formatted("0.50")]]
    )
    html = render("{{ html.table(t) }}", t=table)
    assert '<td>a&lt;b</td><td class="n">1,234</td><td></td>' in html
    assert '<td>c</td><td></td><td class="n">0.50</td>' in html


def test_a_value_shows_what_a_browser_would_obey(render):
    html = render(
        "{{ name }}|{{ name | e }}|{{ html.table(t) }}", name="a\u202e<", t=TableData(["a\x1b"], [["b\nc"]])
    )
    assert html.startswith("a\\u202e&lt;|a\u202e&lt;|")
    assert "a\\u001b" in html
    assert "b\nc" in html


def test_a_table_without_header_has_row_headers(render):
    html = render("{{ html.table(t) }}", t=TableData(["", ""], [["a", True]], style="s", highlighted=0))
    assert '<table class="s">' in html
    assert '<tr class="best"><th scope="row">a</th><td>True</td></tr>' in html
    assert "<thead>" not in html


def test_long_class_names_become_numbers_above_a_matrix(render):
    labels = [f"department of affairs {letter}" for letter in "abcdefg"]
    html = render("{{ html.matrix(m) }}", m=Matrix(labels, [[1] * 7] * 7))
    assert all(f">{number}</th>" in html for number in range(1, 8))
    assert html.count("department of affairs g") == 3
    html = render("{{ html.matrix(m) }}", m=Matrix(["no", "yes"], [[3, 1], [0, 1]]))
    assert ">no</th>" in html
    assert 'var(--bad) 18%,transparent)" title="25.0% of the row">1</td>' in html
    assert '<td class="zero">0</td>' in html


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5000"), (33_890.796, "33,891"), (345.678, "345.68"), (3.1142e-07, "3.114e-07"), (12, "12")],
)
def test_numbers_have_about_five_significant_digits(value: float, text: str):
    assert formats.number(value) == text


def test_settings_keep_their_type_and_long_names_their_ends():
    assert [str(formats.setting(value)) for value in (1.0, 1, 0.06901651, None, True)] == [
        *("1.0", "1", "0.06902", "none", "True"),
    ]
    assert formats.shorten("sensor number 17", 11) == "senso…er 17"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("accuracy 0.93 on the holdout", "Accuracy 0.93 on the holdout"),
        ("roc_auc 0.9", "roc_auc 0.9"),
        ("", ""),
    ],
)
def test_a_sentence_keeps_the_spelling_of_a_name(text: str, shown: str):
    assert formats.sentence(text) == shown


def test_texts_are_listed_with_commas():
    assert [formats.enumerate_texts("abc"[:size]) for size in (1, 2, 3)] == ["a", "a and b", "a, b and c"]


def test_a_chart_has_its_values_inside():
    """Whatever the values contain, they are data: the script element ends after them."""
    template = '{% from "components.html" import chart %}{{ chart("bars", values, label, 100) }}'
    values = {"z": ["</script><b>"], "a": [1.5, None]}
    html = create_environment().from_string(template).render(values=values, label='"<')
    assert '<div class="chart" data-chart="bars" data-height="100" role="img" aria-label="&#34;&lt;">' in html
    data = html.partition('json">')[2].partition("</script>")[0]
    assert "<" not in data
    assert list(json.loads(data).items()) == [("z", ["</script><b>"]), ("a", [1.5, None])]
