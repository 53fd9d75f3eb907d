"""After a clock was set back, each accepted version runs once, and runs that users dated stay as they are."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.configuration import conf
from airflow.dag_processing.collection import _get_latest_runs_stmt
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.timetables.base import TimeRestriction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, event, insert, select
from sqlalchemy.orm import Session

from dmls_core.airflow import database as metadata
from dmls_core.airflow.jobs import timetables
from dmls_core.airflow.jobs.timetables import make_timetable, submission_run_id
from dmls_core.airflow.operations import late_versions, unreported_failures, watchdog
from dmls_core.airflow.operations.clock_steps import correct_dates
from dmls_core.airflow.operations.watchdog import Watchdog
from dmls_core.intake import update_run_status, write_status
from dmls_core.models import load_spec
from dmls_core.store import Registry, open_store
from tests.support.airflow_database import NOW, add_dag, add_run, add_task, memory_database
from tests.unit.conftest import SPEC

DAG = "dmls.lab.iris"
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
HOURLY = SPEC + b'[data]\npath = "{date}.csv"\n[schedule]\ncron = "@hourly"\n'
ANY = TimeRestriction(earliest=None, latest=None, catchup=False)


class Clock:
    """The time that Python, Airflow's SQL and the watchdog see; ``steps`` are what set it."""

    def __init__(self) -> None:
        self.now, self.monotonic = pendulum.instance(NOW), 1000.0

    def wait(self, seconds: float) -> None:
        self.now, self.monotonic = self.now.add(seconds=seconds), self.monotonic + seconds


@pytest.fixture(scope="module")
def database() -> Iterator[tuple[Engine, Clock]]:
    """Airflow's tables, in whose queries it is as late as the clock says."""
    clock = Clock()
    with memory_database() as engine:
        connection = engine.raw_connection()
        connection.driver_connection.create_function(  # type: ignore[union-attr]
            "clock_time", 0, lambda: clock.now.strftime("%Y-%m-%d %H:%M:%S.%f")
        )

        @event.listens_for(engine, "before_cursor_execute", retval=True)
        def say_the_time(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> tuple[str, Any]:
            return statement.replace("CURRENT_TIMESTAMP", "clock_time()"), parameters

        yield engine, clock


class Dag:
    """A job's DAG as the scheduler has it."""

    def __init__(self, record: Any, spec: bytes) -> None:
        self.timetable = make_timetable(DAG, record.as_json(), load_spec(spec).as_json())

    def next_dagrun_info(self, *, last_automated_run_info: Any) -> Any:
        last = last_automated_run_info and last_automated_run_info.data_interval
        return self.timetable.next_dagrun_info(last_automated_data_interval=last, restriction=ANY)

    @staticmethod
    def create_dagrun(*, session: Session, state: Any, triggered_by: Any, **values: Any) -> DagRun:
        del triggered_by
        run = DagRun(dag_id=DAG, state=state, queued_at=None, **values)
        session.add(run)
        session.flush()
        return run


class World:
    """A registry, Airflow's tables, and the real steps of its scheduler and DAG processor over them."""

    def __init__(self, engine: Engine, clock: Clock, folder: Path, spec: bytes) -> None:
        self.clock, self.spec, self.store = clock, spec, open_store(str(folder))
        self.session = Session(engine)
        for model in (Job, TaskInstance, DagRun, DagModel):
            self.session.execute(delete(model))
        add_dag(self.session, DAG, max_active_runs=1)
        self.session.commit()
        self.registry, self.cache = Registry(self.store), {}
        self.watchdog, self.dag, self.contents, self.created = Watchdog(self.store, {}), None, 0, []
        self.scheduler = SchedulerJobRunner(Job())
        self.scheduler._get_current_dag = lambda **_: self.dag  # type: ignore[method-assign,assignment]

    def submit(self, *, again: bool = False) -> None:
        self.contents += not (again and self.contents)
        info = self.store.put("incoming/lab/iris/data.csv", b"a,b,y\n%d,2,x\n" % self.contents)
        before = self.registry.job("lab", "iris")
        record = self.registry.accept(load_spec(self.spec), "lab", "iris", [info], self.clock.now)
        if record != before:
            write_status(
                self.store, "lab", "iris", "accepted", "Accepted.", run_key=record.run_key, fingerprint=""
            )

    def parse(self) -> None:
        """Store the DAG of the current version, and when it runs next, as the DAG processor does."""
        record = self.registry.job("lab", "iris")
        if record is None:
            return
        self.dag = Dag(record, self.spec)
        latest = self.session.scalar(_get_latest_runs_stmt(DAG))
        dag = self.session.get(DagModel, DAG, populate_existing=True)
        dag.calculate_dagrun_date_fields(self.dag, reference_run=latest)
        active = self.session.query(DagRun).filter(DagRun.state.in_(("queued", "running"))).count()
        dag.exceeds_max_non_backfill = active >= 1
        self.session.commit()

    def schedule(self, *, killed: bool = False) -> None:
        """Create, start and end runs; a killed scheduler loses what it has not committed."""
        due, _ = DagModel.dags_needing_dagruns(self.session)
        self.scheduler._create_dag_runs(list(due), self.session)
        if killed:
            self.session.rollback()
            return
        self.session.commit()
        for run in DagRun.get_queued_dag_runs_to_set_running(self.session).unique():
            run.state = "running"
        self.session.commit()
        for run in list(DagRun.get_running_dag_runs_to_examine(self.session)):
            if run.logical_date is None or run.logical_date <= self.clock.now:  # as _schedule_dag_run
                run.state = "success"
                _, _, key = run.run_id.partition("__")
                update_run_status(self.store, "lab", "iris", key, "deployed", "Served.")
        dag = self.session.get(DagModel, DAG, populate_existing=True)
        self.scheduler._set_exceeds_max_active_runs(dag_model=dag, session=self.session)
        self.session.commit()

    def watch(self) -> None:
        records = self.registry.jobs(self.cache)
        self.watchdog.watch(records, {})
        self.session.commit()

    def step(self, back: bool, share: float) -> None:
        self.clock.now += (-DAY if back else DAY) * share

    def settle(self) -> None:
        """Let everything work for some minutes of a clock that no one sets."""
        for _ in range(5):
            self.clock.wait(61)
            self.parse()
            self.schedule()
            self.watch()


ACTIONS = st.one_of(
    st.tuples(st.just("step"), st.booleans(), st.sampled_from((0.001, 0.01, 0.1, 0.5, 1.0))),
    st.sampled_from([("submit",), ("again",), ("parse",), ("schedule",), ("kill",), ("watch",), ("wait",)]),
)


@given(spec=st.sampled_from((SPEC, HOURLY)), actions=st.lists(ACTIONS, max_size=12))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_version_runs_once_whatever_happens_to_the_clock(
    database: tuple[Engine, Clock], monkeypatch: pytest.MonkeyPatch, spec: bytes, actions: list[Any]
) -> None:
    engine, clock = database
    with TemporaryDirectory() as folder, monkeypatch.context() as patch:
        world = World(engine, clock, Path(folder), spec)

        @contextmanager
        def opened(**_: Any) -> Iterator[Session]:
            yield world.session

        patch.setattr(metadata, "create_session", opened)
        patch.setattr(timetables, "now", lambda _: clock.now)
        patch.setattr(watchdog, "datetime", SimpleNamespace(now=lambda _: clock.now))
        for module in (late_versions, watchdog, unreported_failures):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.monotonic))
        work = {
            "step": world.step,
            "submit": world.submit,
            "again": lambda: world.submit(again=True),
            "parse": world.parse,
            "schedule": world.schedule,
            "kill": lambda: world.schedule(killed=True),
            "watch": world.watch,
            "wait": lambda: clock.wait(11),
        }
        world.submit()
        for name, *arguments in actions:
            work[name](*arguments)
        world.settle()
        record = world.registry.job("lab", "iris")
        states = dict(world.session.execute(select(DagRun.run_id, DagRun.state)).all())
        assert states.get(submission_run_id(record.version, record.run_key)) == "success"
        assert set(states.values()) == {"success"}
        world.session.close()


@pytest.fixture
def statements(session: Session) -> Iterator[list[str]]:
    """The statements that the database gets."""
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        found.append(statement)

    engine = session.get_bind()
    event.listen(engine, "before_cursor_execute", note)
    yield found
    event.remove(engine, "before_cursor_execute", note)


def dates(session: Session, run_id: str) -> tuple[datetime, datetime]:
    session.expire_all()
    run = session.scalars(select(DagRun).where(DagRun.run_id == run_id)).one()
    return run.run_after, run.logical_date


def test_runs_that_users_dated_and_those_of_other_dags_keep_their_dates(session: Session) -> None:
    for dag_id in (DAG, "theirs.iris"):
        add_dag(session, dag_id, next_dagrun_create_after=NOW + DAY)
    add_run(session, DAG, "next_week", "queued", hours=24 * 7)
    values = {"state": "queued", "run_type": "scheduled", "run_after": NOW + DAY, "logical_date": NOW + DAY}
    session.execute(insert(DagRun).values(dag_id="theirs.iris", run_id="scheduled", **values))
    backfill = {"run_type": "backfill", "logical_date": NOW + 2 * DAY}
    session.execute(insert(DagRun).values(dag_id=DAG, run_id="backfill", **values | backfill))
    assert correct_dates(session, NOW) == 0
    assert dates(session, "next_week") == (NOW + 7 * DAY, NOW + 7 * DAY)
    assert dates(session, "scheduled") == (NOW + DAY, NOW + DAY)
    assert dates(session, "backfill") == (NOW + DAY, NOW + 2 * DAY)
    assert {dag.next_dagrun_create_after for dag in session.scalars(select(DagModel))} == {NOW + DAY}


def test_the_monitor_keeps_its_schedule(session: Session) -> None:
    """All its intervals are without length, as that of an admission."""
    soon = NOW + 10 * MINUTE
    interval = {"next_dagrun_data_interval_start": soon, "next_dagrun_data_interval_end": soon}
    add_dag(session, "dmls.monitor", next_dagrun_create_after=soon, **interval)
    assert correct_dates(session, NOW) == 0
    add_dag(session, DAG, next_dagrun_create_after=soon, **interval)
    assert correct_dates(session, NOW) == 1


def test_an_intake_that_had_begun_goes_on(session: Session) -> None:
    add_dag(session, "dmls.intake")
    values = {"run_type": "asset_triggered", "run_after": NOW + DAY, "logical_date": None}
    session.execute(insert(DagRun).values(dag_id="dmls.intake", run_id="intake", state="queued", **values))
    assert correct_dates(session, NOW) == 1
    assert dates(session, "intake") == (NOW, None)


def test_the_newest_run_stays_the_newest(session: Session) -> None:
    """Airflow computes the next run from it: another would have the version run again."""
    add_dag(session, DAG)
    for days, state in ((-1, "success"), (0.9, "success"), (1, "running")):
        at = NOW + days * DAY
        values = {"run_type": "scheduled", "run_after": at, "logical_date": at, "data_interval_end": at}
        run = {"dag_id": DAG, "run_id": f"day {days}", "state": state, "data_interval_start": at}
        session.execute(insert(DagRun).values(**run, **values))
    assert correct_dates(session, NOW) == 2
    assert dates(session, "day 1") == (NOW, NOW)
    assert dates(session, "day 0.9") == (NOW + 0.9 * DAY, NOW - timedelta(microseconds=1))
    assert dates(session, "day -1") == (NOW - DAY, NOW - DAY)
    newest = session.scalar(_get_latest_runs_stmt(DAG))
    assert (newest.run_id, newest.data_interval_end) == ("day 1", NOW + DAY)
    assert correct_dates(session, NOW) == 0


def test_retries_start_and_dead_processes_are_noticed(session: Session) -> None:
    add_dag(session, DAG)
    add_run(session, DAG, "run", "running")
    add_task(session, DAG, "run", "plan", "up_for_retry", end_date=NOW + DAY)
    add_task(session, DAG, "run", "search", "running", last_heartbeat_at=NOW + DAY)
    add_task(session, DAG, "run", "stage", "up_for_retry", end_date=NOW + MINUTE / 2)
    add_task(session, DAG, "run", "validate", "success", end_date=NOW + DAY)
    for state in ("running", "success"):
        values = {"job_type": "TriggererJob", "state": state, "latest_heartbeat": NOW + DAY}
        session.execute(insert(Job).values(**values))
    assert correct_dates(session, NOW) == 3
    tasks = {task.task_id: task for task in session.scalars(select(TaskInstance))}
    assert tasks["plan"].end_date == tasks["search"].last_heartbeat_at == NOW
    assert tasks["stage"].end_date == NOW + MINUTE / 2, "the clocks of machines differ a little"
    assert tasks["validate"].end_date == NOW + DAY, "what is done stays as it was"
    assert sorted(job.latest_heartbeat for job in session.scalars(select(Job))) == [NOW, NOW + DAY]


def test_a_dag_is_stored_again_however_recently_it_was(session: Session) -> None:
    for dag_id, stored in ((DAG, NOW + DAY), (f"{DAG}2", NOW), ("theirs", NOW + DAY)):
        add_dag(session, dag_id)
        version = uuid.uuid4()
        session.execute(insert(DagVersion).values(id=version, dag_id=dag_id, version_number=1))
        values = {"dag_id": dag_id, "dag_hash": "h", "data": {}, "dag_version_id": version}
        session.execute(insert(SerializedDagModel).values(id=uuid.uuid4(), last_updated=stored, **values))
    assert correct_dates(session, NOW) == 1
    found = dict(session.execute(select(SerializedDagModel.dag_id, SerializedDagModel.last_updated)).all())
    pause = timedelta(seconds=conf.getint("core", "min_serialized_dag_update_interval"))
    assert found[DAG] < NOW - pause
    assert found[f"{DAG}2"] == NOW
    assert found["theirs"] == NOW + DAY


def test_a_look_is_five_queries_and_writes_nothing(session: Session, statements: list[str]) -> None:
    for number in range(50):
        add_dag(session, f"{DAG}{number}", next_dagrun_create_after=NOW)
        add_run(session, f"{DAG}{number}", "run", "running")
    statements.clear()
    assert correct_dates(session, NOW) == 0
    assert [statement.split()[0] for statement in statements] == ["SELECT"] * 5
