from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.set_clock import SetClock

WATCHED = """
import time
from airflow.listeners.listener import get_listener_manager
from airflow.plugins_manager import integrate_listener_plugins
from dmls_core.airflow.operations import clock_guard
from dmls_core.web.plugin import DmlsPlugin

clock_guard.LOOK_SECONDS = 0.05
for listener in DmlsPlugin.listeners:
    get_listener_manager().add_listener(listener)
get_listener_manager().hook.on_starting(component=None)
print("watches", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not SetClock.possible(), reason="no C compiler: cc is not installed")
def test_a_service_ends_when_its_clock_is_set_back_and_only_then(tmp_path: Path) -> None:
    clock = SetClock(tmp_path)
    watched = subprocess.Popen(
        [sys.executable, "-c", WATCHED],
        env=os.environ | clock.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert watched.stdout
    while watched.stdout.readline() != "watches\n":
        assert watched.poll() is None

    for seconds in (-30, 0, 24 * 60 * 60):
        clock.set(seconds)
        time.sleep(0.2)
        assert watched.poll() is None
    clock.set(0)

    assert watched.wait(10) == -signal.SIGTERM
    assert (
        "The system clock moved back 86400 s. Stopping so that the supervisor restarts"
        in watched.stdout.read()
    )
