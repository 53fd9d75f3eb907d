"""What the suite of runners starts, and how it plays Airflow's worker and triggerer."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import pytest

from dmls_core.store import JobRecord, layout

if TYPE_CHECKING:
    from airflow.triggers.base import TriggerEvent

    from dmls_core.airflow.runners import TrainerOperator
    from dmls_core.airflow.runners.trainer_trigger import TrainerTrigger

SECONDS = 60.0

STATES = {"run": {"search_0": "failed"}}
"""Airflow's answer about a task that a user ended."""

PROGRAM = r'''#!{python}
"""Stands for the trainer: it answers as the job's name asks, and needs Python alone."""
import json, os, signal, subprocess, sys, time, urllib.error, urllib.parse, urllib.request

if sys.argv[1:2] == ["node"]:
    time.sleep(600)
if "train" not in sys.argv:
    sys.exit()  # the runner's check()
arguments = sys.argv[sys.argv.index("train"):]
out = arguments[arguments.index("--out") + 1]
mode = arguments[arguments.index("--name") + 1]


def put(name, content):
    data = json.dumps(content).encode()
    if out.startswith("s3://"):
        url = os.environ["AWS_ENDPOINT_URL"] + "/" + out.removeprefix("s3://").rstrip("/") + "/" + name
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(url, data=data, headers=headers, method="PUT"))
        return
    path = os.path.join(urllib.parse.unquote(urllib.parse.urlsplit(out).path), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.replace(path + ".part", path)


print("a line of standard output", flush=True)
print("a line of standard error", file=sys.stderr, flush=True)
try:
    put("environment.json", dict(os.environ))
except urllib.error.HTTPError as error:
    if error.code != 403:  # an earlier trainer's: a client without credentials may not overwrite it
        raise
if mode == "succeed":
    put("progress.json", {"state": "searching", "finished": 1, "total": 3, "best": 0.9})
    time.sleep(0.3)
    put("result.json", {"score": 0.95, "metric": "accuracy", "model": "m", "engine": "cpu", "artifacts": []})
elif mode == "reject":
    put("error.json", {"exit_code": 1, "message": "data.csv: too many rows", "issues": []})
    sys.exit(1)
elif mode == "crash":
    sys.exit(3)
elif mode == "hang":
    child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", child, out])
    time.sleep(600)
'''


@dataclass
class LogRecorder:
    """Record the lines of a task's log."""

    lines: list[str] = field(default_factory=list)

    def info(self, message: str, *arguments: object, **_: object) -> None:
        self.lines.append(message % arguments if arguments else message)

    debug = warning = error = exception = info

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass
class Launch:
    """One task ``search`` that the suite can start."""

    operator: TrainerOperator
    context: Any
    log: LogRecorder
    record: JobRecord

    def start(self) -> TrainerTrigger:
        """Run the task until it defers; return its trigger as another process restores it."""
        from airflow.sdk.exceptions import TaskDeferred

        with pytest.raises(TaskDeferred) as deferred:
            self.operator.execute(self.context)
        trigger = deferred.value.trigger
        assert isinstance(trigger, resolve_name("dmls_core.airflow.runners.trainer_trigger:TrainerTrigger"))
        return self.restore(trigger)

    def restore(self, trigger: TrainerTrigger) -> TrainerTrigger:
        """Return the trigger as another triggerer restores it."""
        path, arguments = trigger.serialize()
        restored: TrainerTrigger = resolve_name(path)(**json.loads(json.dumps(arguments)))
        restored.task_instance = self.context["task_instance"]
        return restored

    def finish(self, event: TriggerEvent) -> dict[str, Any]:
        """Resume the task as Airflow does after its trigger's event."""
        return self.operator.finish(self.context, event.payload)

    def run(self) -> dict[str, Any]:
        return self.finish(asyncio.run(first_event(self.start())))

    def run_file(self, name: str) -> str:
        return layout.run_folder(self.record.team, self.record.name, self.record.run_key) + name


async def first_event(trigger: TrainerTrigger) -> TriggerEvent:
    """Return the event of a trigger, as the triggerer gets it."""
    async with aclosing(trigger.run()) as events:  # type: ignore[type-var]
        return await anext(events)


class Watch(threading.Thread):
    """A triggerer that watches one trainer, in a thread."""

    def __init__(self, trigger: TrainerTrigger) -> None:
        super().__init__(daemon=True)
        self.trigger = trigger
        self.event: TriggerEvent | None = None
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(first_event(trigger))
        self.start()

    def run(self) -> None:
        with suppress(asyncio.CancelledError):
            self.event = self._loop.run_until_complete(self._task)

    def end(self) -> None:
        """End as a triggerer that stops: the trainer goes on."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self.join(SECONDS)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds; fail after a minute."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.1)
