"""Trainers whose task is gone are ended: real processes, found by the mark that the runner leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from dmls_core.airflow.monitor import upkeep
from dmls_core.airflow.runners.command import RUN_MARK
from dmls_core.airflow.settings import airflow_settings

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP


@pytest.fixture
def settings(tmp_path):
    return replace(airflow_settings(), root=str(tmp_path))


@pytest.fixture
def start(settings):
    """Start processes as the process runner marks them."""
    started = []

    def _start(run, *, root=settings.root, code=SLEEP):
        mark = json.dumps({"root": root, "dag": "dmls.lab.iris", "run": run})
        process = subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, RUN_MARK: mark}, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == b"up\n"
        started.append(process)
        return process

    yield _start
    for process in started:
        process.kill()
        process.communicate()


def test_only_processes_of_this_platform_whose_run_is_over_are_ended(settings, start, monkeypatch):
    monkeypatch.setattr(upkeep, "YOUNG_SECONDS", 0.0)
    monkeypatch.setattr(upkeep, "END_SECONDS", 1.0)
    orphan, alive, other = start("over"), start("at work"), start("over", root="s3://another")
    stubborn = start("over", code=STUBBORN)
    asked = []

    def lives(dag, run):
        asked.append((dag, run))
        return run == "at work"

    ended = upkeep.reap_processes(settings, lives)
    assert sorted(ended) == sorted([orphan.pid, stubborn.pid])
    orphan.wait(60)
    stubborn.wait(60)
    assert (alive.poll(), other.poll()) == (None, None)
    assert {dag for dag, _ in asked} == {"dmls.lab.iris"}


def test_a_young_process_is_left_alone(settings, start):
    process = start("over")
    assert upkeep.reap_processes(settings, lambda *_: False) == []
    assert process.poll() is None
