"""The runner ``process``: the trainer as a process of the worker's machine, with resource limits.

Each trainer has a folder below ``AIRFLOW_HOME``, named by its key, with its log, its exit code once it has
ended, and a lock that it holds while it lives: the kernel releases a lock of a dead process, so no process id
is trusted.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk import Context

from dmls_core import sandbox
from dmls_core.airflow.runners.gpu_placement import GpuSurvey
from dmls_core.airflow.runners.process.gpus import VISIBLE_VARIABLE, lease_gpu, survey_machine
from dmls_core.airflow.runners.runner import LOST, IsActive, Runner, TrainerExit
from dmls_core.airflow.runners.trainer import (
    KEY_LABEL,
    ROOT_LABEL,
    Trainer,
    earlier_tries,
    worker_environment,
)
from dmls_core.airflow.runners.trainer_operator import TrainerOperator
from dmls_core.airflow.settings import airflow_settings
from dmls_core.errors import RunnerError
from dmls_core.settings import CACHE_FOLDER, ProcessSettings

if TYPE_CHECKING:
    import psutil

_LABELS_VARIABLE = ProcessSettings.variable("trainer_labels")
"""Environment variable with a trainer's labels as JSON, which identifies its processes."""

GRACE_SECONDS = 3.0
"""Seconds between SIGTERM and SIGKILL; Airflow kills the task 5 s after it cancels it."""

REAP_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL for an orphan."""

_LOG_BYTES = 1 << 20
"""Most bytes of a log that one read returns."""

_KEEP_EXIT_CODE = (
    'cd "$1/scratch" || exit; f=$1; shift; "$@"; echo $? >"$f/exit.part"; mv "$f/exit.part" "$f/exit"'
)
"""Shell program: run a command in a trainer's folder and write its exit code into the file ``exit``."""


class ProcessTrainerOperator(TrainerOperator):
    """Start ``dmls train`` as a process of the worker's machine.

    It has its own session, a memory limit, a scratch folder that is removed, and of the worker's variables
    only ``worker_environment``. It survives the worker.
    """

    def command(self, trainer: Trainer) -> list[str]:
        """Return the command line that starts the trainer within its memory limit."""
        python = airflow_settings().trainer_python or sys.executable
        return sandbox.command(
            [python, "-m", "dmls_core.cli", *trainer.arguments], trainer.memory, detached=True
        )

    def start(self, trainer: Trainer, context: Context) -> None:
        """Start the process with its lock held."""
        for folder in trainers_folder().glob(f"{earlier_tries(trainer.key)}*"):
            if folder.name != trainer.key:
                self.log.warning("Ending what is left of an earlier try: %s", folder.name)
                end_trainer(folder.name)
        environment = worker_environment() | trainer.environment
        environment[_LABELS_VARIABLE] = json.dumps(trainer.labels)
        if trainer.cache:
            environment[CACHE_FOLDER] = str(trainers_folder().with_name("dmls-caches") / trainer.cache)
        with ExitStack() as files:
            inherited: list[int] = []
            if trainer.engine == "gpu":
                survey = survey_machine(airflow_settings())
                gpu, inherited = lease_gpu(survey, trainer.gpu_memory, files)
                self.log.info("The trainer leases the GPU %d (%s)", gpu.index, gpu.uuid)
                environment[VISIBLE_VARIABLE] = gpu.uuid
            folder = trainers_folder() / trainer.key
            scratch = folder / "scratch"
            scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            environment |= {"HOME": str(scratch), "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}
            self.log.info("Starting the trainer: dmls %s", " ".join(trainer.arguments))
            lock = files.enter_context((folder / "lock").open("w"))
            output = files.enter_context((folder / "log").open("ab"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.log.info("The trainer runs already")
                return
            try:
                subprocess.Popen(
                    ["/bin/sh", "-c", _KEEP_EXIT_CODE, "sh", str(folder), *self.command(trainer)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[lock.fileno(), *inherited],
                )
            except OSError as error:
                raise RunnerError(f"cannot start the trainer: {error}") from error


class ProcessRunner(Runner):
    """Watch trainers that are processes of this machine."""

    operator_class = ProcessTrainerOperator
    starts_nodes = "processes"

    def check(self) -> list[str]:
        """Check that the trainer's Python has the trainer's packages."""
        python = self.settings.trainer_python or sys.executable
        # An import of scikit-learn takes seconds of CPU time.
        code = "import dmls_core, optuna, importlib.metadata as m; m.version('scikit-learn')"
        try:
            completed = subprocess.run(
                [python, "-c", code],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except OSError as error:
            return [f"trainer_python {python} cannot be started: {error}"]
        if completed.returncode:
            reason = completed.stderr.strip().rpartition("\n")[2]
            return [f"{python} cannot import the trainer ({reason}): pip install 'dmls[trainer]'"]
        return []

    def exists(self, key: str) -> bool:
        """Return whether the trainer runs, or has ended and left its exit code."""
        trainer_exit = self.exit_of(key)
        return trainer_exit is None or trainer_exit.code != LOST

    def exit_of(self, key: str) -> TrainerExit | None:
        """Return the exit code that the trainer's shell wrote."""
        folder = trainers_folder() / key
        running = _is_locked(folder / "lock")
        try:
            code = int((folder / "exit").read_text())
        except (OSError, ValueError):
            if running:
                return None
            return TrainerExit(
                LOST,
                "was lost: it was killed, or the triggerer is not on the worker's machine, or has another "
                "AIRFLOW_HOME, which the runner `process` does not support",
            )
        if code <= _SHELL_SIGNALS:
            return TrainerExit(code)
        number = code - _SHELL_SIGNALS
        return TrainerExit(-number, f"was ended by {signal.Signals(number).name}")

    def read_log(self, key: str, position: str) -> tuple[list[str], str]:
        """Return the next complete lines of the log; ``position`` is a number of bytes."""
        start = int(position or 0)
        try:
            with (trainers_folder() / key / "log").open("rb") as file:
                file.seek(start)
                data = file.read(_LOG_BYTES)
        except FileNotFoundError:
            return [], position
        if len(data) < _LOG_BYTES:
            data = data[: data.rfind(b"\n") + 1]
        return data.decode(errors="replace").splitlines(), str(start + len(data))

    def stop(self, key: str) -> None:
        """End the trainer's processes: SIGTERM, then SIGKILL."""
        end_trainer(key)

    def survey_gpus(self) -> GpuSurvey:
        """Probe this machine's GPUs, and read their leases."""
        return survey_machine(self.settings)

    def reap(self, is_active: IsActive) -> list[str]:
        """End trainers on this machine whose task is gone, and what trainers left behind."""
        return _reap_processes(self, is_active)


_SHELL_SIGNALS = 128
"""A shell adds it to the number of the signal that ended a command."""


def trainers_folder() -> Path:
    """Return the folder with one folder for each trainer of this machine."""
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    return home / "dmls-trainers"


def end_trainer(key: str) -> None:
    """End the processes of a trainer and remove its folder."""
    processes = [process for process, labels in _trainer_processes() if labels.get(KEY_LABEL) == key]
    _end(processes, GRACE_SECONDS)
    shutil.rmtree(trainers_folder() / key, ignore_errors=True)


def _reap_processes(runner: Runner, is_active: IsActive) -> list[str]:
    """End this machine's orphans by their ``_LABELS_VARIABLE`` and return their ids; for ``Runner.reap``."""
    import psutil

    orphans, keys = [], set()
    for process, labels in _trainer_processes(runner.settings.platform):
        with suppress(psutil.Error):
            old = time.time() - process.create_time() >= runner.min_age_seconds
            if old and not is_active(labels["dmls.dag"], labels["dmls.run"]):
                orphans.append(process)
                keys |= {labels[KEY_LABEL]} if KEY_LABEL in labels else set()
    _end(orphans, REAP_SECONDS)
    for key in keys:
        shutil.rmtree(trainers_folder() / key, ignore_errors=True)
    return [str(process.pid) for process in orphans]


def _end(processes: list[psutil.Process], grace: float) -> None:
    import psutil

    signals: tuple[Callable[[psutil.Process], None], ...] = (psutil.Process.terminate, psutil.Process.kill)
    for send in signals:
        for process in processes:
            with suppress(psutil.Error):
                send(process)
        processes = psutil.wait_procs(processes, timeout=grace)[1]


def _is_locked(path: Path) -> bool:
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _trainer_processes(platform: str = "") -> Iterator[tuple[psutil.Process, dict[str, str]]]:
    """Yield this machine's processes of trainers, with their labels; only those of ``platform`` if given."""
    import psutil

    for process in psutil.process_iter():
        try:
            text = process.environ().get(_LABELS_VARIABLE)
        except psutil.Error:
            continue
        if text and platform in ("", (labels := json.loads(text))[ROOT_LABEL]):
            yield process, labels
