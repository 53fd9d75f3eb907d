"""The runner ``process``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dmls_core.airflow.runners import trainer_events
from dmls_core.airflow.runners.process import runner as process
from dmls_core.airflow.runners.process.runner import ProcessRunner, trainers_folder
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.testing.runners import RunnerSuite
from tests.support.caches import CacheJourney
from tests.support.gpus import GpuJourney, simulate_gpus


class TestProcessRunner(CacheJourney, GpuJourney, RunnerSuite):
    name = "process"
    device_variable = "CUDA_VISIBLE_DEVICES"

    def cache_of(self, environment: dict[str, str], _settings: AirflowSettings) -> str:
        folder = Path(environment["DMLS_CACHE_FOLDER"])
        assert folder.parent == trainers_folder().with_name("dmls-caches")
        return folder.name

    @pytest.fixture(autouse=True)
    def _short_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trainer_events, "POLL_SECONDS", 0.1)
        for name in ("GRACE_SECONDS", "REAP_SECONDS"):  # The suite's programs ignore SIGTERM.
            monkeypatch.setattr(process, name, 0.3)

    @pytest.fixture
    def two_gpus(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        simulate_gpus(tmp_path, monkeypatch, (80, 9000, 16384), (0, 300, 16384))


@pytest.mark.parametrize(("options", "lacking"), [("", ""), ("-S", "cannot import the trainer")])
def test_its_check_finds_what_the_trainer_s_python_lacks(tmp_path: Path, options: str, lacking: str):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -P {options} "$@"\n')
    python.chmod(0o755)
    runner = ProcessRunner(AirflowSettings(root=str(tmp_path), runner="process", trainer_python=str(python)))
    found = "".join(runner.check())
    assert found.startswith(f"{python} {lacking}") if lacking else found == ""
