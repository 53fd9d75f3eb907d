"""Lines, curves, differences, words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from airflow.models.log import Log

from dmls_core.web import words
from dmls_core.web.job.audit import tell
from dmls_core.web.job.differences import Difference, differences, flatten
from dmls_core.web.job.log_tail import log_lines
from dmls_core.web.job.run_files import RunFiles
from dmls_core.web.job.trial_view import curve, rank
from dmls_core.web.sparkline import HEIGHT, WIDTH, sparkline


def test_a_line_stays_inside_its_box_and_rises_with_the_score():
    line = sparkline([0.5, 0.9, 0.7])
    assert line is not None
    points = [tuple(map(float, point.split(","))) for point in line.points.split()]
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points)
    assert points[1][1] < points[2][1] < points[0][1]
    assert line.last == points[-1]
    assert line.label == "3 runs, from 0.5 to 0.7, between 0.5 and 0.9"


def test_a_line_needs_two_scores_and_takes_equal_ones():
    assert sparkline([0.5]) is None
    line = sparkline([0.5, 0.5])
    assert line is not None
    assert len({point.split(",")[1] for point in line.points.split()}) == 1


def trial(number: int, value: float | None, state: str = "complete") -> dict[str, object]:
    return {"number": number, "value": value, "state": state}


def test_the_best_trial_comes_first_and_pruned_and_failed_ones_last():
    trials = [trial(0, 0.5), trial(1, 0.9, "pruned"), trial(2, None, "failed"), trial(3, 0.8)]
    assert [found["number"] for found in rank(trials, "maximize")] == [3, 0, 1, 2]
    assert [found["number"] for found in rank(trials, "minimize")] == [0, 3, 1, 2]


@pytest.mark.parametrize(("direction", "best"), [("maximize", 2), ("minimize", 1)])
def test_the_curve_marks_the_best_finished_trial(direction: str, best: int):
    found = curve([trial(0, 0.5), trial(1, 0.3), trial(2, 0.8), trial(3, 0.9, "pruned")], direction)
    assert found is not None
    assert [label.split(":")[0] for *_, label, marked in found.dots if marked] == [f"trial {best}"]
    assert f"the best is trial {best}" in found.label


def test_a_curve_needs_two_scores():
    assert curve([trial(0, 0.5), trial(1, None, "failed")], "maximize") is None


def test_named_tables_are_compared_by_their_names():
    before = {"models": [{"name": "forest", "depth": {"max": 4}}], "n": 5, "tags": ["a"]}
    after = {"models": [{"name": "boost", "rate": 1}, {"name": "forest", "depth": {"max": 8}}], "n": 5}
    assert flatten(before) == {"models.forest.depth.max": 4, "n": 5, "tags": ["a"]}
    assert differences(before, after) == [
        Difference("models.boost.rate", (None, 1)),
        Difference("models.forest.depth.max", (4, 8)),
        Difference("tags", (["a"], None)),
    ]


def test_the_log_is_without_airflows_marks_and_where_it_looked():
    entries = [
        {"event": "::group::Log message source details", "sources": []},
        {"event": "Could not read served logs"},
        {"event": "::endgroup::"},
        {"event": "::group::Pre Execute", "timestamp": "2026-01-01T10:00:00Z"},
        {"event": "trial 1/5\nbest", "timestamp": "2026-01-01T10:00:01Z"},
        {"event": "broke", "error_detail": [{"exc_type": "ValueError", "exc_value": "no"}]},
        "plain",
    ]
    assert log_lines(entries) == ["10:00:01 trial 1/5", "10:00:01 best", "broke", "ValueError: no", "plain"]


def test_time_left_is_that_of_the_trials_that_were_paid_for():
    trials = [
        {"seconds": 2.0, "same_as": None},
        {"seconds": 0.0, "same_as": 0},
        {"seconds": 4.0, "same_as": None},
    ]
    progress = {"state": "searching", "finished": 3, "total": 13}
    assert RunFiles(progress, None, None, None, trials, has_report=False).seconds_left == 30.0
    assert RunFiles(progress, {}, None, None, [], has_report=False).seconds_left is None
    done = RunFiles(progress, {"score": 1}, None, None, trials, has_report=True)
    assert done.seconds_left is None


def test_times_are_told_from_now():
    now = datetime.now(UTC)
    assert words.ago(now - timedelta(seconds=5)) == "just now"
    assert words.ago((now - timedelta(hours=2, minutes=5)).isoformat()) == "2 hours ago"
    assert words.ago(now + timedelta(days=1, minutes=1)) == "in 1 day"
    assert words.ago("") == ""
    assert words.moment("2026-01-02T03:04:05+01:00") == "2026-01-02 02:04:05 UTC"


@pytest.mark.parametrize(
    ("value", "score", "setting"),
    [
        (0.93333333, "0.9333", "0.933333"),
        (1234, "1,234", "1234"),
        (0.0000012, "1.2e-06", "1.2e-06"),
        (None, "", "none"),
        (True, "True", "true"),
        ("gini", "gini", "gini"),
    ],
)
def test_numbers(value: object, score: str, setting: str):
    assert (words.number(value), words.setting(value)) == (score, setting)


def test_sizes_and_spans():
    assert [words.size(count) for count in (12, 2048, 3 << 20, 5 << 40)] == [
        "12 bytes",
        "2.0 KiB",
        "3.0 MiB",
        "5,120.0 GiB",
    ]
    assert [words.span(seconds) for seconds in (None, 3.14, 42, 600, 9000)] == [
        "",
        "3.1 s",
        "42 s",
        "10 min",
        "2.5 h",
    ]


@pytest.mark.parametrize(
    ("event", "extra", "told"),
    [
        ("trigger_dag_run", '{"conf": {"run": {"n_trials": 9}}}', ("started a run", "n_trials = 9")),
        ("trigger_dag_run", '{"conf": null, "method": "POST"}', ("started a run", "")),
        ("update_hitl_detail", '{"chosen_options": ["Approve"]}', ("approved the model", "")),
        ("update_hitl_detail", '{"chosen_options": ["Reject"]}', ("declined the model", "")),
        ("patch_dag", '{"is_paused": true}', ("paused the job", "")),
        ("patch_dag", '{"is_paused": false}', ("resumed the job", "")),
        ("dmls_rollback", '{"version": 1, "previous": 2}', ("rolled back", "to version 1, from 2")),
        ("dmls_retire", "not JSON", ("retired the job", "")),
        ("dmls_respec", None, ("dropped a changed spec", "")),
    ],
)
def test_the_history_is_in_words(event: str, extra: str | None, told: tuple[str, str]):
    assert tell(Log(event=event, extra=extra)) == told
