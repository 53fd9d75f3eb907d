"""Rendering and the filters of templates."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from dmls_core.html import formats
from dmls_core.web import pages, templating
from dmls_core.web.templating import STATIC, TEMPLATES, environment


def test_templates_escape_every_value_and_have_no_inline_scripts_or_styles():
    assert environment().autoescape is True
    for file in TEMPLATES.glob("*.html"):
        text = file.read_text()
        assert "| safe" not in text, file
        assert "style=" not in text, file
        assert "onclick" not in text, file
        assert "<script>" not in text, file


def test_cells_of_jobs_carry_their_headings_for_narrow_screens():
    table = (TEMPLATES / "jobs_table.html").read_text()
    labels = re.findall(r'<td data-label="([^"]+)"', table)
    headings = [heading for heading, _ in pages.COLUMNS]
    assert labels == headings[-len(labels) :], "in the order of the columns, and in their words"
    assert "attr(data-label)" in (STATIC / "app.css").read_text()


@pytest.mark.parametrize("team", ["sea", "team" * 75])
def test_a_long_folder_name_leaves_room_for_the_other_columns(team: str):
    name = "long" * 75
    unset = "message paused waiting models scores served drift next_run owner updated".split()
    row = dict.fromkeys(unset, "") | {"team": team, "name": name, "state": "rejected", "score": None}
    template = environment().get_template("jobs_table.html")
    page, snapshot = (
        {"rows": [row], "states": {}, "total": 1},
        {"troubles": [], "complete": True, "as_of": ""},
    )
    shown = template.render(page=page, snapshot=snapshot, columns=[], query={"offset": 0}, pages={}, base="")
    (link,) = re.findall(r'<a href="[^"]*" title="([^"]*)">([^<]*)/<b>([^<]*)</b>', shown)
    assert link == (f"{team}/{name}", formats.shorten(team, 63), formats.shorten(name, 63))
    assert len(link[2]) == 63


def test_ago_is_relative_to_now():
    now = datetime.now(UTC)
    assert formats.ago(now - timedelta(seconds=5)) == "just now"
    assert formats.ago((now - timedelta(hours=2, minutes=5)).isoformat()) == "2 hours ago"
    assert formats.ago(now + timedelta(days=1, minutes=1)) == "in 1 day"
    assert formats.ago("") == ""
    assert templating.timestamp("2026-01-02T03:04:05+01:00") == "2026-01-02 02:04:05 UTC"


@pytest.mark.parametrize(
    ("value", "number", "parameter"),
    [
        (0.93333333, "0.9333", "0.933333"),
        (1234, "1,234", "1234"),
        (27720.4, "27,720", "27720.4"),
        (1.0, "1.0000", "1.0"),
        (-1234.5, "-1,234.5", "-1234.5"),
        (0.0000012, "1.2e-06", "1.2e-06"),
        (None, "", "none"),
        (True, "True", "true"),
        ("gini", "gini", "gini"),
    ],
)
def test_numbers_and_parameters(value: object, number: str, parameter: str):
    assert (templating.number(value), templating.parameter(value)) == (number, parameter)


def test_cells_show_whole_numbers_and_years_as_people_write_them():
    values = (5.0, 1987.0, 0.25, 1234.56, 19798.0, "Zürich")
    assert [templating.cell(value) for value in values] == [
        "5",
        "1987",
        "0.25",
        "1,235",
        "19,798",
        "Zürich",
    ]


def test_file_sizes_and_durations():
    assert [formats.file_size(count) for count in (12, 2048, 3 << 20, 5 << 40)] == [
        "12 bytes",
        "2.0 KiB",
        "3.0 MiB",
        "5,120.0 GiB",
    ]
    assert [formats.duration(seconds) for seconds in (None, 3.14, 42, 600, 9000)] == [
        "",
        "3.1 s",
        "42 s",
        "10 min",
        "2.5 h",
    ]
