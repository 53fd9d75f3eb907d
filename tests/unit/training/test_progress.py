"""What the trainer shows while it works."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmls_core.search.callbacks import SearchProgress
from dmls_core.search.trial import Trial
from dmls_core.store import open_store
from dmls_core.training import progress as progress_module
from dmls_core.training.progress import Progress, duration, format_score
from dmls_core.training.run_folder import RunFolder

TASK = SimpleNamespace(better=lambda one, other: one > other)


def trial(number: int, value: float | None, **more: object) -> Trial:
    state = "failed" if value is None else "complete"
    return Trial(number, state, "cpu", {}, value, seconds=2.0, **more)


@pytest.fixture
def reporter(tmp_path: Path):
    lines: list[str] = []
    folder = RunFolder(open_store(str(tmp_path)))
    folder.claim("aaaa")
    progress = Progress(folder, lines.append, total=5)
    return progress, lines, lambda: json.loads((tmp_path / "progress.json").read_text())


def test_lines_for_people(reporter):
    progress, lines, _ = reporter
    progress.enter("searching", "searching n_estimators")
    progress.trial(TASK, "accuracy", trial(0, 0.95))
    progress.trial(TASK, "accuracy", trial(1, None, message="max_features is too large"))
    progress.trial(TASK, "accuracy", trial(2, 0.9))
    progress.trial(TASK, "accuracy", trial(3, 0.95, same_as=0))

    assert lines == [
        "searching n_estimators",
        "trial 0  accuracy 0.9500  best 0.9500  1 of 5  eta 8 s",
        "trial 1 failed: max_features is too large",
        "trial 2  accuracy 0.9000  best 0.9500  2 of 5  eta 6 s",
        "trial 3  accuracy 0.9500  best 0.9500  3 of 5  eta 4 s  (same as trial 0)",
    ]


def test_pruned_and_resumed_trials(reporter):
    progress, lines, read = reporter
    early = {"state": "pruned", "message": "given up after 20 rounds"}
    for number, value in enumerate((0.97, 0.8)):
        progress.trial(TASK, "r2", replace(trial(number, value), **early))
    progress.trial(TASK, "r2", trial(2, 0.9))
    progress.trial(TASK, "r2", replace(trial(3, 0.99), **early))
    progress.trial(TASK, "r2", trial(0, 0.93))

    assert lines == [
        "trial 0  r2 0.9700  best 0.9700  1 of 5  eta 8 s  (given up after 20 rounds)",
        "trial 1  r2 0.8000  best 0.9700  2 of 5  eta 6 s  (given up after 20 rounds)",
        "trial 2  r2 0.9000  best 0.9000  3 of 5  eta 4 s",
        "trial 3  r2 0.9900  best 0.9000  4 of 5  eta 2 s  (given up after 20 rounds)",
        "trial 0 went on  r2 0.9300  best 0.9300  eta 2 s",
    ]
    progress.enter("refitting", "fitting")
    assert (read()["finished"], read()["best"]) == (4, 0.93)


def test_the_remaining_time_is_the_searchs_estimate(reporter, monkeypatch):
    progress, lines, read = reporter
    progress.step(SearchProgress(80, 3, 24))
    progress.trial(TASK, "r2", replace(trial(0, 0.5), state="pruned"))
    progress.step(SearchProgress(60, 2, 50, 0.6))  # no one has waited for it
    monkeypatch.setattr(progress_module, "QUIET", 0)
    progress.step(SearchProgress(40, 2, 50, 0.6))
    progress.step(SearchProgress(9, 1, 100, 0.7))
    progress.step(SearchProgress(0, 1, 150))
    progress.trial(TASK, "r2", trial(0, 0.71))

    assert lines == [
        "trial 0  r2 0.5000  best 0.5000  1 of 5  eta 80 s",
        "2 forests have 50 trees  best 0.6000  eta 40 s",
        "the winner has 100 trees  best 0.7000  eta 9 s",
        "trial 0 went on  r2 0.7100  best 0.7100",
    ]
    assert read()["message"] in lines


def test_progress_for_programs(reporter):
    progress, _, read = reporter
    progress.enter("searching", "searching n_estimators")
    assert read()["state"] == "searching"
    assert (read()["finished"], read()["best"]) == (0, None)

    progress.resume(TASK, [trial(n, 0.5 + n / 10) for n in range(4)])
    progress.trial(TASK, "accuracy", trial(4, 0.6))

    found = read()
    assert (found["schema"], found["finished"], found["total"]) == (1, 5, 5)
    assert found["best"] == pytest.approx(0.8)
    assert found["message"] == "trial 4  accuracy 0.6000  best 0.8000  5 of 5"
    progress.enter("finished", "done")
    assert read()["state"] == "finished"


def test_the_progress_of_an_earlier_attempt_stays_until_its_trials_are_counted(reporter, tmp_path: Path):
    first, _, read = reporter
    first.trial(TASK, "accuracy", trial(0, 0.7))
    first.enter("searching", "searching")

    folder = RunFolder(open_store(str(tmp_path)))
    folder.claim("aaaa")
    again = Progress(folder, lambda _: None, total=5)
    shown = []
    again.enter("loading", "loading 1 file of data")
    shown.append(read())
    again.resume(TASK, [trial(0, 0.7), trial(1, 0.9)])
    again.enter("searching", "searching")
    shown.append(read())
    assert [(one["state"], one["best"]) for one in shown] == [("loading", 0.7), ("searching", 0.9)]
    assert [one["finished"] for one in shown] == [1, 2], "the second is in its file only"


def test_fewer_trials_than_requested_are_announced(reporter):
    progress, lines, read = reporter
    progress.expect(5)
    progress.expect(1)
    progress.enter("searching", "searching n_estimators")
    assert (read()["total"], lines[0]) == (1, "1 trial instead of 5: no others differ")


def test_phases_are_timed(reporter):
    progress, _, _ = reporter
    with progress.phase("load"):
        pass
    with progress.phase("load"):
        pass

    seconds = progress.rounded()

    assert set(seconds) == {"load", "total"}
    assert 0 <= seconds["load"] <= seconds["total"]


def test_durations():
    assert [duration(s) for s in (0.4, 59, 200, 9000)] == ["0 s", "59 s", "3 min", "2.5 h"]


def test_the_remaining_time_ends_with_the_timeout(reporter):
    progress, lines, _ = reporter
    progress.limit(0.0)
    progress.trial(TASK, "accuracy", trial(0, 0.95))

    assert lines == ["trial 0  accuracy 0.9500  best 0.9500  1 of 5  eta 0 s"]


@pytest.mark.parametrize(
    ("score", "text"),
    [(0.95, "0.9500"), (0, "0.0000"), (-0.5, "-0.5000"), (2.345678e-7, "2.346e-07"), (5.8e11, "5.8e+11")],
)
def test_scores_have_significant_digits(score, text):
    assert format_score(score) == text
