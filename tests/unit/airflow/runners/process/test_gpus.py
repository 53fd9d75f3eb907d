"""Leases of GPUs by locks, on simulated GPUs and real processes."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmls_core.airflow.runners.gpu_placement import GpusBusyError, GpuSurvey, ProbedGpu
from dmls_core.airflow.runners.process import gpus as process_gpus
from dmls_core.airflow.runners.process.gpus import lease_gpu, survey_machine
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import RunnerError
from tests.support.gpus import simulate_gpus

GIB = 1 << 30
IDLE = (0, 100, 16384)


def machine(**values: object) -> GpuSurvey:
    return survey_machine(AirflowSettings(root="/root", runner="process", **values))


def test_the_survey_has_the_machine_s_visible_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    simulate_gpus(tmp_path, monkeypatch, IDLE, (70, 8192, 16384), IDLE)
    found = machine().gpus
    assert found[1] == ProbedGpu(1, "GPU-111", 70.0, 8 * GIB, 16 * GIB)
    assert [gpu.index for gpu in machine(gpus=2).gpus] == [0, 1]
    for visible in ("2,0", "GPU-222,GPU-000"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert [gpu.index for gpu in machine().gpus] == [0, 2]


def test_a_machine_without_nvidia_smi_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(RunnerError, match=r"cannot probe the GPUs: nvidia-smi failed with code 127"):
        machine()


HOLD = """
import json, sys
from contextlib import ExitStack
from pathlib import Path
from dmls_core.airflow.runners.process import gpus as process_gpus
from dmls_core.airflow.runners.gpu_placement import GpusBusyError, GpuSurvey, ProbedGpu

process_gpus.leases_folder = lambda: Path(sys.argv[1])
gpus = [ProbedGpu(i, f"GPU-{i}", 0.0, 0, 16 << 30) for i in range(2)]
with ExitStack() as files:
    try:
        print(process_gpus.lease_gpu(GpuSurvey(gpus), 1 << 30, files)[0].index, flush=True)
    except GpusBusyError:
        print("busy", flush=True)
    sys.stdin.read()
"""


def test_a_killed_process_returns_its_gpu(tmp_path: Path):
    def hold() -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    held = [hold() for _ in range(3)]
    assert sorted(answer for _, answer in held) == ["0", "1", "busy"]
    killed, gpu = next(entry for entry in held if entry[1] != "busy")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    again, answer = hold()
    assert answer == gpu
    for process, _ in [*held, (again, "")]:
        process.kill()
        process.communicate()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 3),
    shares=st.integers(1, 4),
    needs=st.lists(st.integers(1, 15), min_size=1, max_size=12),
    threads=st.integers(1, 4),
)
def test_no_gpu_is_ever_leased_beyond_its_shares(tmp_path, monkeypatch, count, shares, needs, threads):
    """Trainers that start and end at once, each with a survey that may be outdated."""
    monkeypatch.setattr(process_gpus, "leases_folder", lambda: tmp_path / "leases")
    gpus = [ProbedGpu(index, f"GPU-{index}", 0.0, 0, 16 * GIB) for index in range(count)]
    guard, held, worst, waiting = threading.Lock(), dict.fromkeys(range(count), 0), [], list(needs)

    def run() -> None:
        while True:
            with guard:
                if not waiting:
                    return
                memory = waiting.pop() * GIB
                seen = dict(held)
            survey = GpuSurvey(gpus, seen, shares)
            with ExitStack() as files:
                try:
                    gpu, locks = lease_gpu(survey, memory, files)
                except GpusBusyError as busy:
                    assert "waits for a GPU" in str(busy)  # noqa: PT017
                    continue
                assert len(locks) == survey.shares_of(gpu, memory)
                with guard:
                    held[gpu.index] += len(locks)
                    worst.append(held[gpu.index])
                with guard:
                    held[gpu.index] -= len(locks)

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert max(worst, default=0) <= shares
    if threads == 1:
        assert len(worst) == len(needs)


def test_the_trainer_of_a_lease_inherits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    simulate_gpus(tmp_path, monkeypatch, IDLE)
    with ExitStack() as files:
        gpu, locks = lease_gpu(machine(), GIB, files)
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=locks)
    assert machine().leases == {gpu.index: 1}
    child.communicate()
    assert machine().leases == {}
    (lock,) = (tmp_path / "leases").iterdir()
    assert lock.name == "GPU-000.0"
    assert stat.S_IMODE(lock.stat().st_mode) == 0o666, "other users lease the same GPUs"


def test_platforms_with_temporary_folders_of_their_own_share_the_leases(monkeypatch: pytest.MonkeyPatch):
    before = process_gpus.leases_folder()
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert process_gpus.leases_folder() == before
