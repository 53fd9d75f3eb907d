"""The ``process`` runner: the trainer as a process of its own group, environment and limits."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

from airflow.sdk import BaseOperator, Context

from dmls_core import sandbox
from dmls_core.airflow.connections import open_root
from dmls_core.airflow.job import job_of
from dmls_core.airflow.runners.command import (
    RUN_MARK,
    data_limits,
    run_mark,
    take_turn,
    trainer_arguments,
)
from dmls_core.airflow.runners.outcome import answer, raise_failure, runner_file
from dmls_core.airflow.runners.progress import ProgressWatcher
from dmls_core.airflow.settings import AirflowSettings, airflow_settings
from dmls_core.airflow.status import StatusReporter
from dmls_core.airflow.study_database import study_environment
from dmls_core.hardware import parse_memory

GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL; Airflow itself kills the task 5 s after it cancels it."""

PASSED_ON = re.compile(r"(PATH|LANG|LC_\w+|TZ|DMLS_PLATFORM_ID|SSL_CERT_\w+|CUDA_VISIBLE_DEVICES)")
"""The only variables of the worker that the trainer sees, with those of ``data_limits``."""


class ProcessTrainerOperator(BaseOperator):
    """Runs ``dmls train`` on the worker's own machine and waits for its answer in the store.

    The process has its own session, a scrubbed environment, a scratch folder that is removed, a memory
    limit, and dies with the task: cancelling the task in Airflow ends the whole group.

    Args:
        plan: one worker's share of the search, as the task ``plan`` returned it.
    """

    template_fields = ()

    def __init__(self, *, plan: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self._process: subprocess.Popen[str] | None = None
        self._reporter: StatusReporter | None = None
        self._secrets: dict[str, str] = {}
        self._mark = ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Start the trainer, pass its log on, and return the gist of ``result.json``."""
        settings = airflow_settings()
        job, store = job_of(context), open_root(settings)
        arguments = trainer_arguments(job, store, self.plan)
        # The leader tells how the run goes.
        self._reporter = None if self.plan["worker"] else StatusReporter(job, store, context["run_id"])
        self._secrets = store.trainer_environment() | study_environment(job)
        self._secrets |= take_turn(job, store, self.plan)
        self._mark = run_mark(settings.root, job, context["run_id"])
        memory = parse_memory(job.spec.resources.memory or settings.memory)
        with (
            tempfile.TemporaryDirectory(prefix="dmls-run-") as scratch,
            ProgressWatcher(job, store, self._reporter) if self._reporter else nullcontext(),
        ):
            code = self._run(settings, arguments, memory, Path(scratch))
        ending = f"exited with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
        store.put(
            job.run_file(runner_file(self.plan)),
            json.dumps({"schema": 1, "runner": "process", "exit_code": code}).encode(),
        )
        if code != 0:
            raise_failure(job, store, ending, self.plan, context)
        return answer(job, store, self.plan)

    def _run(self, settings: AirflowSettings, arguments: list[str], memory: int, scratch: Path) -> int:
        environment = {k: v for k, v in os.environ.items() if PASSED_ON.fullmatch(k)}
        environment |= data_limits() | self._secrets | {RUN_MARK: self._mark}
        environment |= {"HOME": str(scratch), "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}
        python = settings.trainer_python or sys.executable
        command = sandbox.command([python, "-m", "dmls_core.cli", *arguments], memory, python)
        self.log.info("Starting the trainer: dmls %s", " ".join(arguments))
        self._process = subprocess.Popen(
            command,
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            pipe: IO[str] = self._process.stdout  # type: ignore[assignment]
            for line in pipe:
                self.log.info("%s", line.rstrip())
            return self._process.wait()
        finally:
            self._end_group()

    def on_kill(self) -> None:
        """End the trainer and say so: Airflow calls no other callback when a user stops a task."""
        self._end_group()
        if self._reporter:
            self._reporter.stopped()

    def _end_group(self) -> None:
        """End the trainer's process group: politely, then not."""
        process = self._process
        if process is None:
            return
        for number, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                return
            try:
                process.wait(timeout=patience)
            except subprocess.TimeoutExpired:
                self.log.warning("the trainer did not end within %s s of %s", patience, number.name)
