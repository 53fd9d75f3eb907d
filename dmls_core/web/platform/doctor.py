"""What `dmls doctor` says, asked of the command itself and kept for a while."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import PlatformError
from dmls_core.settings import ENVIRONMENT

SECONDS = 60.0
"""Longest run of the command."""

KEPT = 60.0
"""Seconds for which its answer counts."""

_lock = threading.Lock()
_answer: tuple[float, list[dict[str, Any]]] = (-KEPT, [])


def ask_doctor(settings: AirflowSettings, *, again: bool = False) -> list[dict[str, Any]]:
    """Return the checks, at most a minute old; of several callers at once one runs the command.

    Args:
        settings: the services that it is to look at, where the environment names no others.
        again: run it whatever is known.

    Raises:
        PlatformError: the command fails or takes too long.
    """
    global _answer
    with _lock:
        at, checks = _answer
        if again or time.monotonic() - at > KEPT:
            checks = _run(settings)
            _answer = (time.monotonic(), checks)
        return checks


def _run(settings: AirflowSettings) -> list[dict[str, Any]]:
    addresses = {
        ENVIRONMENT[name]: getattr(settings, name)
        for name in ("root", "mlflow_uri", "triton_http", "triton_grpc", "triton_repository")
    }
    environment = {**{name: value for name, value in addresses.items() if value}, **os.environ}
    command = [sys.executable, "-P", "-m", "dmls_core.cli", "doctor", "--json"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        checks: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise PlatformError(f"`dmls doctor` does not answer: {error}") from error
    return checks
