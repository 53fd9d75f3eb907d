"""A run's files."""

from __future__ import annotations

from dmls_core.web.services.runs import RunFiles


def test_the_time_left_comes_from_trials_that_were_not_duplicates():
    trials = [
        {"seconds": 2.0, "same_as": None},
        {"seconds": 0.0, "same_as": 0},
        {"seconds": 4.0, "same_as": None},
    ]
    progress = {"state": "searching", "finished": 3, "total": 13}
    assert RunFiles(progress, trials=trials).seconds_left == 30.0
    assert RunFiles(progress, {}).seconds_left is None
    done = RunFiles(progress, {"score": 1}, trials=trials)
    assert done.seconds_left is None
