"""The time of a search, over attempts that were killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dmls_core.errors import DataError
from dmls_core.search.trial import Trial
from dmls_core.store import open_store
from dmls_core.training.run_folder import STARTS, RunFolder, SearchClock

KILLED = """
import os, signal, sys, time
from dmls_core.store import open_store
from dmls_core.training.run_folder import SearchClock
from dmls_core.training.run_folder import RunFolder
with SearchClock(RunFolder(open_store(sys.argv[1])), 3600):
    print("searching", flush=True)
    time.sleep(600)
"""


def trial(seconds: float) -> Trial:
    return Trial(0, "complete", "cpu", {}, value=0.5, values=(0.5,), seconds=seconds)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(open_store(str(tmp_path)))


def test_what_a_killed_trainer_spent_counts(folder: RunFolder, tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "searching\n"
    late = time.monotonic() + 120
    while folder.clock()[0] < 0.5:
        assert time.monotonic() < late
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    spent, starts = folder.clock()
    assert starts == 1
    left = SearchClock(folder, 3600).left([])
    assert left == pytest.approx(3600 - spent)


def test_what_trials_tell_themselves_is_not_counted_twice(folder: RunFolder):
    folder.keep_clock(100, 1)

    # The search takes off the trials' own seconds.
    assert SearchClock(folder, 300).left([trial(60)]) == 300 - 40
    assert SearchClock(folder, 300).left([trial(60)], workers=2) == 300 - 70
    assert SearchClock(folder, 300).left([trial(150)]) == 300
    assert SearchClock(folder, None).left([trial(150)]) is None


def test_attempts_that_bring_no_trial_come_to_an_end(folder: RunFolder):
    folder.keep_clock(11, STARTS - 1)
    left = SearchClock(folder, 10).left([])
    assert left is not None
    assert left < 0

    folder.keep_clock(11, STARTS)
    with pytest.raises(DataError, match="before the first trial ended"):
        SearchClock(folder, 10).left([])
    assert SearchClock(folder, 10).left([trial(1)]) == 0


def test_without_a_timeout_nothing_is_kept(folder: RunFolder, tmp_path: Path):
    with SearchClock(folder, None):
        pass
    assert not list(tmp_path.rglob("clock.json"))
