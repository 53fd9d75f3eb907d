"""GPUs of the worker's machine for the runner ``process``: each leased by a lock on a file.

The trainer inherits the locked file, and the kernel releases the lock when the trainer has ended, however it
ended. All platforms of a machine share the files.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from dmls_core.airflow.runners.gpu_placement import (
    PROBE,
    GpusBusyError,
    GpuSurvey,
    ProbedGpu,
    parse_probe,
)
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import RunnerError

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"

_PROBE_SECONDS = 60

_ATTEMPTS = 3
"""How often a lock is tried: a survey holds each for a moment."""


def leases_folder() -> Path:
    """Return the folder with the lock files of this machine's GPUs, the same for all users and platforms."""
    return Path("/tmp/dmls-gpus")  # noqa: S108 - not that of TMPDIR, which a platform may have of its own


def survey_machine(settings: AirflowSettings) -> GpuSurvey:
    """Probe this machine's GPUs that ``CUDA_VISIBLE_DEVICES`` leaves visible, and read their leases.

    Raises:
        RunnerError: the machine has no GPUs, or the probe failed.
    """
    try:
        completed = subprocess.run(
            ["/bin/sh", "-c", PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RunnerError(f"nvidia-smi did not answer within {_PROBE_SECONDS} s") from error
    if completed.returncode:
        output = (completed.stdout + completed.stderr).strip()[-300:]
        raise RunnerError(
            f"cannot probe the GPUs: nvidia-smi failed with code {completed.returncode}: {output}"
        )
    gpus = [gpu for gpu in parse_probe(completed.stdout) if _is_visible(gpu)]
    gpus = gpus[: settings.gpus] if settings.gpus else gpus
    shares = settings.trainers_per_gpu
    held = Counter(gpu.index for gpu in gpus for share in range(shares) if _is_leased(gpu, share))
    return GpuSurvey(gpus, held, shares)


def lease_gpu(survey: GpuSurvey, memory: int, files: ExitStack) -> tuple[ProbedGpu, list[int]]:
    """Lease the best free GPU; return it with the file descriptors that hold the lease.

    Args:
        survey: the machine's GPUs.
        memory: bytes of GPU memory that the trainer needs.
        files: closes the descriptors of this process; those that a child inherited keep the lease.

    Raises:
        GpusBusyError: none is free.
    """
    for gpu in survey.free(memory):
        with ExitStack() as attempt:
            needed = survey.shares_of(gpu, memory)
            locked: list[int] = []
            # A GPU that was empty is taken by its first file, so that no other trainer has come since.
            for share in range(survey.shares if survey.leases.get(gpu.index) else needed):
                file = attempt.enter_context(_open(gpu, share))
                if len(locked) < needed and _lock(file):
                    locked.append(file.fileno())
                elif not survey.leases.get(gpu.index):
                    break
            if len(locked) == needed:
                files.enter_context(attempt.pop_all())
                return gpu, locked
    raise GpusBusyError(survey.reason(memory))


def _open(gpu: ProbedGpu, share: int) -> IO[bytes]:
    folder = leases_folder()
    folder.mkdir(exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(folder / f"{gpu.uuid}.{share}", flags, 0o666)
    with suppress(PermissionError):  # another user's
        folder.chmod(0o1777)
        os.fchmod(descriptor, 0o666)
    return os.fdopen(descriptor, "r+b")


def _lock(file: IO[bytes]) -> bool:
    for attempt in range(_ATTEMPTS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt < _ATTEMPTS - 1:
                time.sleep(0.01)
        else:
            return True
    return False


def _is_leased(gpu: ProbedGpu, share: int) -> bool:
    with _open(gpu, share) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _is_visible(gpu: ProbedGpu) -> bool:
    visible = os.environ.get(VISIBLE_VARIABLE)
    if visible is None:
        return True
    names = [name.strip() for name in visible.split(",") if name.strip()]
    return any(name == str(gpu.index) or gpu.uuid.startswith(name) for name in names)
