"""Tests that every runner must pass.

Subclass ``RunnerSuite`` in a test module and name the runner as its entry point does:

    class TestMyRunner(RunnerSuite):
        name = "my-runner"

The suite starts a small program instead of the trainer. A runner on the worker's machine starts
``settings.trainer_python``, which the suite sets to that program. For a runner elsewhere, override the
fixture ``settings``, and ``trainers`` so that the suite can see which of its programs run.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from dmls_core.errors import PlatformError, RunnerError
from dmls_core.intake import read_status
from dmls_core.models import load_spec
from dmls_core.store import JobRecord, Registry, Store, layout

if TYPE_CHECKING:
    from dmls_core.airflow.runners import Runner, TrainerOperator
    from dmls_core.airflow.settings import AirflowSettings

if "airflow" not in sys.modules:
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="dmls-airflow-"))

SECONDS = 60.0

SECRET = "suite-secret"  # noqa: S105 - no real one
STUDY = "postgres://optuna:study-secret@db.example.com:5432/studies"

SPEC = 'model = "random-forest-classifier"\nn_trials = 3\ncolumns.target = "y"\nsearch.workers = 2\n'

PROGRAM = r'''#!{python}
"""Stands for the trainer: it answers as the job's name asks, and needs Python alone."""
import json, os, signal, subprocess, sys, time, urllib.parse, urllib.request

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
put("environment.json", dict(os.environ))
if mode == "succeed":
    put("progress.json", {"state": "searching", "finished": 1, "total": 3, "best": 0.9})
    time.sleep(1)
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

    def run(self) -> dict[str, Any]:
        return self.operator.execute(self.context)

    def run_file(self, name: str) -> str:
        return layout.run_folder(self.record.team, self.record.name, self.record.run_key) + name


class RunnerSuite:
    """Tests of a runner."""

    name: ClassVar[str]

    def trainers(self, settings: AirflowSettings) -> list[str]:
        """Return ids of the suite's programs that run now: processes that name ``settings.root``."""
        import psutil

        found = []
        for process in psutil.process_iter():
            try:
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.pid != os.getpid() and settings.root in " ".join(process.cmdline()):
                    found.append(str(process.pid))
            except psutil.Error:
                continue
        return found

    @pytest.fixture
    def program(self, tmp_path: Path) -> Path:
        path = tmp_path / "trainer.py"
        path.write_text(PROGRAM.replace("{python}", sys.executable))
        path.chmod(0o755)
        return path

    @pytest.fixture
    def settings(self, tmp_path: Path, program: Path) -> AirflowSettings:
        """Return the platform's settings; override it for a runner that starts no ``trainer_python``."""
        from dmls_core.airflow.settings import AirflowSettings

        root = tmp_path / "root"
        return AirflowSettings(root=str(root), runner=self.name, trainer_python=str(program))

    @pytest.fixture
    def platform(
        self, settings: AirflowSettings, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[AirflowSettings]:
        """Make Airflow read ``settings`` as its bundle entry, in an environment with secrets."""
        from dmls_core.airflow import runners
        from dmls_core.airflow.settings import BUNDLE_CLASSPATH, airflow_settings

        entry = {"name": "dmls", "classpath": BUNDLE_CLASSPATH, "kwargs": settings.model_dump()}
        monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([entry]))
        monkeypatch.setenv("AIRFLOW_CONN_DMLS_STUDY", STUDY)
        monkeypatch.setenv("DMLS_TRITON_KEY", SECRET)
        monkeypatch.setenv("DMLS_DATA_CLASSES", "2000")
        monkeypatch.setattr(runners, "PROGRESS_SECONDS", 0.1)
        airflow_settings.cache_clear()
        yield settings
        airflow_settings.cache_clear()

    @pytest.fixture
    def store(self, platform: AirflowSettings) -> Store:
        from dmls_core.airflow.settings import open_root

        return open_root(platform)

    @pytest.fixture
    def runner(self, platform: AirflowSettings) -> Runner:
        from dmls_core.airflow.runners import load_runner

        return load_runner(platform)

    @pytest.fixture
    def launch(
        self, runner: Runner, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[..., Launch]:
        """Return a function that prepares a job's search; the job's name selects the program's behavior."""
        from dmls_core.airflow.bundle import shard_file, write_dag_files

        def _launch(mode: str, *, worker: int = 0, last_try: bool = False) -> Launch:
            data = store.put(f"incoming/suite/{mode}/data.csv", b"x,y\n1,a\n2,b\n")
            spec = load_spec(SPEC.encode())
            record = Registry(store).accept(spec, "suite", mode, [data], datetime.now(UTC))
            dag_id, folder = layout.dag_id("suite", mode), tmp_path / "dags"
            entry = {"record": record.as_json(), "spec": spec.as_json()}
            write_dag_files(folder, {dag_id: entry}, {}, shards=1)
            task = SimpleNamespace(
                dag_id=dag_id,
                run_id="run",
                task_id="search",
                map_index=0,
                try_number=4 if last_try else 1,
                max_tries=3,
                xcom_pull=lambda **_: None,
                get_task_states=lambda **_: {"run": {"search_0": "failed"}},
            )
            context = {
                "dag": SimpleNamespace(dag_id=dag_id, fileloc=str(shard_file(folder, dag_id, 1))),
                "dag_run": SimpleNamespace(run_type="manual", conf={}),
                "run_id": "manual__1",
                "task_instance": task,
            }
            log, plan = LogRecorder(), {"worker": worker, "engine": "cpu"}
            operator = runner.operator_class(task_id="search", plan=plan)
            monkeypatch.setattr(type(operator), "log", log)
            return Launch(operator, context, log, record)

        return _launch

    @pytest.fixture
    def hanging(
        self, launch: Callable[..., Launch], platform: AirflowSettings
    ) -> Iterator[tuple[Launch, threading.Thread]]:
        """Start a trainer that hangs, in a thread; end it after the test."""
        search = launch("hang")

        def work() -> None:
            try:
                search.run()
            except Exception as error:  # noqa: BLE001 - the suite reads the log
                search.log.info("ended by %s: %s", type(error).__name__, error)

        thread = threading.Thread(target=work)
        thread.start()
        wait_for(lambda: "a line of standard output" in search.log.text and len(self.trainers(platform)) > 0)
        yield search, thread
        search.operator.cancel()
        thread.join(SECONDS)

    # -- the tests -------------------------------------------------------------------------------------

    def test_this_machine_has_what_the_runner_needs(self, runner: Runner) -> None:
        assert runner.check() == []

    def test_a_result_is_read_back(
        self, launch: Callable[..., Launch], store: Store, platform: AirflowSettings
    ) -> None:
        """The task returns the summary of ``result.json``; ``runner.json`` names the runner."""
        search = launch("succeed")
        assert search.run() == {"score": 0.95, "metric": "accuracy", "model": "m", "engine": "cpu"}
        record = json.loads(store.get(search.run_file("runner.json")))
        assert (record["schema"], record["runner"], record["exit_code"]) == (1, self.name, 0)
        assert self.trainers(platform) == []

    def test_output_and_progress_are_forwarded_while_the_trainer_runs(
        self, launch: Callable[..., Launch], store: Store
    ) -> None:
        """Both streams are in the task's log, and ``_status`` has the progress."""
        search = launch("succeed")
        search.run()
        assert "a line of standard output" in search.log.lines
        assert "a line of standard error" in search.log.lines
        status = read_status(store, "suite", "succeed")
        assert status is not None
        assert status.message == "training 1/3, best so far 0.9000"

    def test_a_users_mistake_fails_without_a_retry(self, launch: Callable[..., Launch], store: Store) -> None:
        """Exit code 1 with ``error.json`` is the user's error; its message is the trainer's."""
        from airflow.sdk.exceptions import AirflowFailException

        search = launch("reject")
        with pytest.raises(AirflowFailException, match=r"data\.csv: too many rows"):
            search.run()
        assert json.loads(store.get(search.run_file("runner.json")))["exit_code"] == 1

    def test_a_crash_may_be_retried_and_names_the_exit_code(
        self, launch: Callable[..., Launch], platform: AirflowSettings
    ) -> None:
        """Any other exit code is the platform's error."""
        with pytest.raises(RunnerError, match="the trainer exited with code 3"):
            launch("crash").run()
        assert self.trainers(platform) == []

    def test_a_trainer_without_a_result_fails(self, launch: Callable[..., Launch]) -> None:
        """Exit code 0 alone is not success."""
        with pytest.raises(RunnerError, match=r"wrote no result\.json"):
            launch("silent").run()

    def test_an_additional_worker_is_skipped_after_its_last_try(self, launch: Callable[..., Launch]) -> None:
        from airflow.sdk.exceptions import AirflowSkipException

        with pytest.raises(RunnerError, match="exited with code 3"):
            launch("crash", worker=1).run()
        with pytest.raises(AirflowSkipException, match="goes on without this worker"):
            launch("crash", worker=1, last_try=True).run()

    def test_the_trainer_gets_what_it_needs_and_no_other_secret(
        self, launch: Callable[..., Launch], store: Store
    ) -> None:
        """The study's URL and data limits are in its environment; Airflow's own secrets are not."""
        search = launch("succeed")
        search.run()
        environment = json.loads(store.get(search.run_file("environment.json")))
        assert "study-secret" in environment["DMLS_STUDY_URL"]
        assert environment["DMLS_DATA_CLASSES"] == "2000"
        assert SECRET not in json.dumps(environment)
        assert [name for name in environment if name.startswith("AIRFLOW")] == []
        assert "study-secret" not in search.log.text
        assert "study-secret" not in store.get(search.run_file("runner.json")).decode()

    def test_a_cancelled_task_leaves_nothing_running(
        self, hanging: tuple[Launch, threading.Thread], platform: AirflowSettings, store: Store
    ) -> None:
        """``on_kill`` ends the trainer and its child processes, within the time that Airflow leaves."""
        search, thread = hanging
        begin = time.monotonic()
        search.operator.on_kill()
        thread.join(SECONDS)
        assert not thread.is_alive()
        wait_for(lambda: self.trainers(platform) == [])
        assert time.monotonic() - begin < SECONDS / 2
        status = read_status(store, "suite", "hang")
        assert status is not None
        assert status.message.startswith("The training was stopped")

    def test_only_orphans_of_this_platform_are_reaped(
        self,
        hanging: tuple[Launch, threading.Thread],
        runner: Runner,
        platform: AirflowSettings,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """``reap`` spares the young, the active, and trainers of another platform."""
        _, thread = hanging
        assert runner.reap(lambda *_: False) == []  # all are young
        monkeypatch.setattr(runner, "min_age_seconds", -SECONDS)
        other = type(runner)(platform.model_copy(update={"root": f"{platform.root}-other"}))
        monkeypatch.setattr(other, "min_age_seconds", -SECONDS)
        assert other.reap(lambda *_: False) == []
        asked = []

        def is_active(dag_id: str, run_id: str) -> bool:
            asked.append((dag_id, run_id))
            return True

        assert runner.reap(is_active) == []
        assert set(asked) == {("dmls.suite.hang", "manual__1")}
        assert thread.is_alive()
        assert runner.reap(lambda *_: False) != []
        wait_for(lambda: self.trainers(platform) == [])
        thread.join(SECONDS)
        assert not thread.is_alive()

    def test_an_unknown_runner_is_refused_with_a_suggestion(self) -> None:
        from dmls_core.airflow.settings import split_kwargs

        with pytest.raises(PlatformError, match=rf"did you mean '{self.name}'"):
            split_kwargs({"root": "s3://bucket", "runner": f"{self.name}x"})


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds; fail after a minute."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.1)
