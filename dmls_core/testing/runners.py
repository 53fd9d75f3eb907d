"""Tests that every runner must pass.

The suite starts a small program instead of the trainer. A runner on the worker's machine starts
``settings.trainer_python``, which the suite sets to that program. For a runner elsewhere, override the
fixture ``settings``, and ``trainers`` so that the suite can see which of its programs run.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

import pytest

from dmls_core.errors import PlatformError, RunnerError
from dmls_core.intake import read_status
from dmls_core.models import load_spec
from dmls_core.settings import ProcessSettings
from dmls_core.store import Registry, Store, layout
from dmls_core.store.waiting_queue import enqueue, waiting_since
from dmls_core.testing.trainer_program import (
    PROGRAM,
    SECONDS,
    STATES,
    Launch,
    LogRecorder,
    Watch,
    first_event,
    wait_for,
)

if TYPE_CHECKING:
    from dmls_core.airflow.runners import Runner
    from dmls_core.airflow.settings import AirflowSettings

if "airflow" not in sys.modules:
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="dmls-airflow-"))

SECRET = "suite-secret"  # noqa: S105 - no real one
STUDY = "postgres://optuna:study-secret@db.example.com:5432/studies"

SPEC = 'model = "random-forest-classifier"\nn_trials = 3\ncolumns.target = "y"\nsearch.workers = 2\n'


class RunnerSuite:
    """Tests of a runner; a subclass names it as its entry point does.

    Examples:
        pytest runs every test; here, one is called by hand:

        >>> from dmls_core.testing import RunnerSuite
        >>> class TestProcessRunner(RunnerSuite):
        ...     name = "process"
        >>> TestProcessRunner().test_an_unknown_runner_is_refused_with_a_suggestion()
    """

    name: ClassVar[str]

    def trainers(self, settings: AirflowSettings) -> list[str]:
        """Return ids of the suite's programs that run now: processes that name ``settings.root``."""
        import psutil

        trainers = []
        for process in psutil.process_iter():
            try:
                alive = process.status() != psutil.STATUS_ZOMBIE
                if alive and process.pid != os.getpid() and settings.root in " ".join(process.cmdline()):
                    trainers.append(str(process.pid))
            except psutil.Error:
                continue
        return trainers

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
        from dmls_core.airflow.runners import trainer_trigger
        from dmls_core.airflow.settings import BUNDLE_CLASSPATH, airflow_settings

        entry = {"name": "dmls", "classpath": BUNDLE_CLASSPATH, "kwargs": settings.model_dump()}
        monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([entry]))
        monkeypatch.setenv("AIRFLOW_CONN_DMLS_STUDY", STUDY)
        monkeypatch.setenv("DMLS_TRITON_KEY", SECRET)
        monkeypatch.setenv("DMLS_DATA_CLASSES", "2000")
        monkeypatch.setattr(trainer_trigger, "PROGRESS_SECONDS", 0.1)
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
        from dmls_core.airflow.bundle.dag_files import job_json, write_dag_files
        from dmls_core.airflow.runners import TrainerOperator
        from dmls_core.airflow.runners.trainer_trigger import TrainerTrigger
        from dmls_core.airflow.shards import shard_file

        def _launch(mode: str, *, worker: int = 0, last_try: bool = False, try_number: int = 1) -> Launch:
            data = store.put(f"incoming/suite/{mode}/data.csv", b"x,y\n1,a\n2,b\n")
            spec = load_spec(SPEC.encode())
            record = Registry(store).accept(spec, "suite", mode, [data], datetime.now(UTC))
            dag_id, folder = layout.dag_id("suite", mode), tmp_path / "dags"
            entry = {"record": record.as_json(), "spec": spec.as_json()}
            write_dag_files(folder, {dag_id: job_json(entry)}, {}, shards=1)
            task = SimpleNamespace(
                dag_id=dag_id,
                run_id="run",
                task_id="search",
                map_index=0,
                try_number=4 if last_try else try_number,
                max_tries=3,
                xcom_pull=lambda **_: None,
                get_task_states=lambda **_: STATES,
            )
            context = {
                "dag": SimpleNamespace(dag_id=dag_id, fileloc=str(shard_file(folder, dag_id, 1))),
                "dag_run": SimpleNamespace(run_type="manual", conf={}),
                "run_id": "manual__1",
                "task_instance": task,
                "ti": task,
            }
            log, plan = LogRecorder(), {"worker": worker, "engine": "cpu"}
            assert issubclass(runner.operator_class, TrainerOperator)
            operator = runner.operator_class(task_id="search", plan=plan)
            monkeypatch.setattr(type(operator), "log", log)
            monkeypatch.setattr(TrainerTrigger, "log", log)
            return Launch(operator, context, log, record)

        return _launch

    @pytest.fixture
    def hanging(
        self, launch: Callable[..., Launch], platform: AirflowSettings, runner: Runner
    ) -> Iterator[tuple[Launch, Watch]]:
        """Start a trainer that hangs, and watch it; end it after the test."""
        search = launch("hang")
        watch = Watch(search.start())
        wait_for(lambda: "a line of standard output" in search.log.text and len(self.trainers(platform)) > 0)
        yield search, watch
        runner.stop(watch.trigger.key)
        watch.join(SECONDS)

    # -- the tests -------------------------------------------------------------------------------------

    def test_this_machine_has_what_the_runner_needs(self, runner: Runner) -> None:
        assert runner.check() == []

    def test_a_result_is_read_back(
        self, launch: Callable[..., Launch], store: Store, platform: AirflowSettings
    ) -> None:
        """The task returns the summary of ``result.json``; ``runner.json`` names the runner."""
        search = launch("succeed")
        enqueue(store, "cpu", "suite", "succeed", search.record.run_key)
        assert search.run() == {"score": 0.95, "metric": "accuracy", "model": "m", "engine": "cpu"}
        record = json.loads(store.get(search.run_file("runner.json")))
        assert (record["schema"], record["runner"], record["exit_code"]) == (1, self.name, 0)
        assert self.trainers(platform) == []
        assert waiting_since(store, "cpu") == {}

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

    def test_a_helper_that_left_for_another_run_joins_again_until_the_search_is_over(
        self, launch: Callable[..., Launch], store: Store, platform: AirflowSettings
    ) -> None:
        """The same try starts another trainer once it has a slot again."""
        from airflow.sdk.exceptions import TaskDeferred

        search = launch("silent", worker=1)
        request = search.run_file(layout.leave(1))
        event = asyncio.run(first_event(search.start()))
        store.put(request, b"")
        with pytest.raises(TaskDeferred) as deferred:
            search.finish(event)
        assert store.head(request) is None
        event = asyncio.run(first_event(search.restore(deferred.value.trigger)))
        store.put(request, b"")
        store.put(search.run_file(layout.PROGRESS), b'{"state": "refitting"}')
        assert search.finish(event) == {"worker": 1}
        assert self.trainers(platform) == []

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

    @pytest.mark.parametrize("deferred", [True, False])
    def test_a_cancelled_task_leaves_nothing_running(
        self, hanging: tuple[Launch, Watch], platform: AirflowSettings, store: Store, deferred: bool
    ) -> None:
        """``on_kill`` ends the trainer and its child processes, within the time that Airflow leaves."""
        search, watch = hanging
        begin = time.monotonic()
        if deferred:
            watch.end()
            asyncio.run(watch.trigger.on_kill())
        else:  # the worker is about to defer
            search.operator.on_kill()
        wait_for(lambda: self.trainers(platform) == [])
        assert time.monotonic() - begin < SECONDS / 2
        watch.join(SECONDS)
        assert not watch.is_alive()
        status = read_status(store, "suite", "hang")
        assert status is not None
        assert status.message.startswith("The training was stopped")

    def test_a_trainer_survives_the_triggerer_and_is_not_started_twice(
        self, hanging: tuple[Launch, Watch], launch: Callable[..., Launch], platform: AirflowSettings
    ) -> None:
        """Another triggerer goes on; the same try, started again by another worker, adopts the trainer."""
        _, watch = hanging
        running = sorted(self.trainers(platform))
        watch.end()
        assert sorted(self.trainers(platform)) == running
        again = launch("hang")
        adopted = again.start()
        assert adopted.key == watch.trigger.key
        assert sorted(self.trainers(platform)) == running
        other = Watch(adopted)
        wait_for(lambda: "a line of standard output" in again.log.text)
        other.end()
        assert sorted(self.trainers(platform)) == running

    def test_a_result_is_found_after_an_outage_of_the_triggerer(
        self, launch: Callable[..., Launch], store: Store, platform: AirflowSettings, runner: Runner
    ) -> None:
        """A trainer that ended meanwhile is not lost, even if the triggerer died after its record."""
        search = launch("succeed")
        trigger = search.start()
        wait_for(lambda: runner.exit_of(trigger.key) is not None)
        first, second = (asyncio.run(first_event(search.restore(trigger))) for _ in range(2))
        assert search.finish(first) == search.finish(second)
        assert self.trainers(platform) == []
        assert json.loads(store.get(search.run_file("runner.json")))["exit_code"] == 0

    def test_a_lost_trainer_may_be_retried(
        self, hanging: tuple[Launch, Watch], runner: Runner, platform: AirflowSettings
    ) -> None:
        """Whatever removes a trainer, its task fails and says so."""
        search, watch = hanging
        runner.stop(watch.trigger.key)
        watch.join(SECONDS)
        assert watch.event is not None
        with pytest.raises(RunnerError, match=r"the trainer ((was )?lost|exited with code)"):
            search.finish(watch.event)
        assert self.trainers(platform) == []

    def test_a_new_try_ends_what_the_earlier_one_left(
        self, hanging: tuple[Launch, Watch], launch: Callable[..., Launch], runner: Runner
    ) -> None:
        """As after a task that was cleared while no triggerer ran."""
        _, watch = hanging
        trigger = launch("hang", try_number=2).start()
        assert trigger.key != watch.trigger.key
        assert not runner.exists(watch.trigger.key)
        assert runner.exit_of(trigger.key) is None
        runner.stop(trigger.key)

    def test_only_orphans_of_this_platform_are_reaped(
        self,
        hanging: tuple[Launch, Watch],
        runner: Runner,
        platform: AirflowSettings,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """``reap`` spares the young, the active, and trainers of another platform."""
        _, watch = hanging
        assert runner.reap(lambda *_: False) == []  # all are young
        monkeypatch.setattr(runner, "min_age_seconds", -SECONDS)
        other = type(runner)(platform.model_copy(update={"root": f"{platform.root}-other"}))
        monkeypatch.setattr(other, "min_age_seconds", -SECONDS)
        assert other.reap(lambda *_: False) == []
        embedded = type(runner)(platform)
        monkeypatch.setattr(embedded, "min_age_seconds", -SECONDS)
        with pytest.MonkeyPatch.context() as patch:  # Embedded platforms have the same root.
            patch.setenv(ProcessSettings.variable("platform_id"), "another")
            assert embedded.reap(lambda *_: False) == []
        asked = []

        def is_active(dag_id: str, run_id: str) -> bool:
            asked.append((dag_id, run_id))
            return True

        assert runner.reap(is_active) == []
        assert set(asked) == {("dmls.suite.hang", "manual__1")}
        assert watch.is_alive()
        assert runner.reap(lambda *_: False) != []
        wait_for(lambda: self.trainers(platform) == [])
        watch.join(SECONDS)
        assert not watch.is_alive()

    def test_an_unknown_runner_is_refused_with_a_suggestion(self) -> None:
        from dmls_core.airflow.settings import split_kwargs

        with pytest.raises(PlatformError, match=rf"did you mean '{self.name}'"):
            split_kwargs({"root": "s3://bucket", "runner": f"{self.name}x"})
