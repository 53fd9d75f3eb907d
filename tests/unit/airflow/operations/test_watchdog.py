"""An accepted version without a run: what is said, when, and that a blocked one runs once after all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.timetables.base import DataInterval, TimeRestriction
from sqlalchemy import insert, update
from sqlalchemy.orm import Session

from dmls_core.airflow import database
from dmls_core.airflow.jobs.timetables import make_timetable, submission_run_id
from dmls_core.airflow.operations import late_versions, watchdog
from dmls_core.airflow.operations.service_health import Probe, probe_all, service_probes
from dmls_core.airflow.operations.watchdog import Watchdog
from dmls_core.errors import PlatformError, StoreError
from dmls_core.intake import admit, find_submissions, read_status, update_run_status, write_status
from dmls_core.models import load_spec
from dmls_core.store import JobRecord, Registry, Store, open_store
from dmls_core.store.local import LocalStore
from tests.support.airflow_database import add_dag, memory_database
from tests.unit.conftest import SPEC

DAG = "dmls.lab.iris"
HOURLY = SPEC + b'[data]\npath = "{date}.csv"\n[schedule]\ncron = "@hourly"\n'
ANY = TimeRestriction(earliest=None, latest=None, catchup=False)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Airflow's database, with the DAG of the job."""
    with memory_database() as engine, Session(engine) as session:
        add_dag(session, DAG)

        @contextmanager
        def opened(**_: Any) -> Iterator[Session]:
            yield session

        monkeypatch.setattr(database, "create_session", opened)
        yield session


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The monotonic clock of the watchdog, which a test moves."""
    found = SimpleNamespace(now=1000.0)
    for module in (late_versions, watchdog):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


@pytest.fixture
def store(root: Path) -> Store:
    return open_store(str(root))


@pytest.fixture
def accepted(accept: Callable[..., JobRecord], store: Store) -> Callable[..., JobRecord]:
    """Accept a version as admission does, with its status."""

    def _accepted(**options: Any) -> JobRecord:
        record = accept("lab", "iris", **options)
        write_status(
            store,
            "lab",
            "iris",
            "accepted",
            "Accepted.",
            run_key=record.run_key,
            fingerprint=record.fingerprint,
        )
        return record

    return _accepted


def add_run(session: Session, run_id: str, interval: tuple[datetime, datetime], **values: Any) -> None:
    start, end = interval
    run = {"dag_id": DAG, "run_id": run_id, "state": "success", "run_type": "scheduled", "run_after": end}
    dates = {"logical_date": start, "data_interval_start": start, "data_interval_end": end}
    session.execute(insert(DagRun).values(run | dates | values))


class Watched:
    """The watchdog over a registry, as the bundle calls it."""

    def __init__(self, store: Store, clock: SimpleNamespace) -> None:
        self.store, self.clock = store, clock
        self.probes: dict[str, Probe] = {}
        self.watchdog, self.cache = Watchdog(store, self.probes), {}

    def look(self, after: float = 0.0) -> str:
        """Look once after some seconds; return the message of the job's status."""
        self.clock.now += after
        faults: dict[str, str] = {}
        records = Registry(self.store).jobs(self.cache, faults)
        self.watchdog.watch(records, faults)
        status = read_status(self.store, "lab", "iris")
        return status.message if status else ""


@pytest.fixture
def watched(store: Store, clock: SimpleNamespace) -> Watched:
    return Watched(store, clock)


def test_a_version_without_a_run_is_told_after_a_minute_whatever_the_clock_says(
    session: Session, accepted: Callable[..., JobRecord], watched: Watched, store: Store
) -> None:
    record = accepted()
    tomorrow = replace(record, admitted=(record.admitted_at + timedelta(days=1)).isoformat())
    watched.cache["registry/jobs/lab/iris.json"] = (
        store.head("registry/jobs/lab/iris.json").etag,
        tomorrow,
    )
    assert watched.look() == "Accepted."
    assert watched.look(59) == "Accepted."
    message = watched.look(11)
    assert "Airflow has not started version 1, accepted" in message
    assert "see `dmls doctor` and the scheduler's log" in message

    session.execute(update(DagModel).values(is_paused=True))
    assert watched.look(5) == message, "the next look is due later"
    assert "the job is paused" in watched.look(6)

    run_id = submission_run_id(1, record.run_key)
    add_run(session, run_id, (record.admitted_at, record.admitted_at))
    assert watched.look(11) == "Accepted."


def test_why_a_version_waits(session: Session, accepted: Callable[..., JobRecord], watched: Watched) -> None:
    now = datetime.now(UTC)
    accepted()
    watched.look()
    add_run(session, "manual", (now, now), run_type="manual", state="running")
    assert "the job's previous run has not finished" in watched.look(61)
    session.execute(update(DagModel).values(dag_id="dmls.lab.other"))
    assert "it has no DAG of the job yet" in watched.look(11)


def test_a_version_whose_run_was_deleted_is_left_alone(
    session: Session, accepted: Callable[..., JobRecord], watched: Watched, store: Store
) -> None:
    record = accepted()
    assert update_run_status(store, "lab", "iris", record.run_key, "deployed", "Served.")
    for _ in range(3):
        assert watched.look(61) == "Served."
    assert Registry(store).job("lab", "iris") == record


def scheduled_runs(session: Session, record: JobRecord) -> list[str]:
    """Create the runs that Airflow's scheduler would create now; return their IDs."""
    spec = load_spec(HOURLY).as_json()
    timetable = make_timetable(DAG, record.as_json(), spec)
    last, created = None, []
    latest = session.query(DagRun).order_by(DagRun.logical_date.desc()).first()
    if latest is not None:
        last = DataInterval(
            *(pendulum.instance(at) for at in (latest.data_interval_start, latest.data_interval_end))
        )
    info = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=ANY)
    if info is not None and info.run_after <= datetime.now(UTC):
        run_id = timetable.generate_run_id(
            run_type="scheduled", run_after=info.run_after, data_interval=info.data_interval
        )
        add_run(session, run_id, (info.data_interval.start, info.data_interval.end))
        created.append(run_id)
    session.execute(update(DagModel).values(next_dagrun=info.logical_date if info else None))
    return created


@pytest.mark.parametrize("ahead", [timedelta(minutes=1), timedelta(days=1)], ids=str)
def test_a_version_that_an_interval_overtook_runs_once(
    session: Session, accepted: Callable[..., JobRecord], watched: Watched, store: Store, ahead: timedelta
) -> None:
    """The clock was ahead, or an interval ended between the admission and the DAG of its version."""
    record = accepted(spec=HOURLY)
    end = record.admitted_at + ahead
    add_run(session, "scheduled", (end - timedelta(hours=1), end))
    assert scheduled_runs(session, record) == [], "Airflow takes the version for an old one"

    watched.look()
    message = watched.look(61)
    assert "a clock was set, or an interval of the schedule ended meanwhile" in message
    later = Registry(store).job("lab", "iris")
    assert later is not None
    assert later.admitted_at == end + timedelta(microseconds=1)
    assert scheduled_runs(session, later) == [submission_run_id(1, record.run_key)]

    assert watched.look(11) == "Accepted."
    for _ in range(3):
        watched.look(61)
        assert Registry(store).job("lab", "iris") == later
        assert submission_run_id(1, record.run_key) not in scheduled_runs(session, later)


def test_a_run_that_airflow_is_about_to_create_is_not_postponed(
    session: Session, accepted: Callable[..., JobRecord], watched: Watched, store: Store
) -> None:
    record = accepted()
    end = record.admitted_at + timedelta(hours=1)
    add_run(session, "scheduled", (end - timedelta(days=9), end))
    session.execute(update(DagModel).values(next_dagrun=record.admitted_at))
    watched.look()
    watched.look(61)
    assert Registry(store).job("lab", "iris") == record


def test_a_version_that_a_clock_that_was_set_back_holds_up_is_named(
    session: Session, accepted: Callable[..., JobRecord], watched: Watched
) -> None:
    record = accepted()
    tomorrow = datetime(2100, 1, 2, 3, tzinfo=UTC)
    values = {"next_dagrun": record.admitted_at, "next_dagrun_create_after": tomorrow}
    session.execute(update(DagModel).values(values))
    watched.look()
    assert "the system clock was set back. The run starts at 2100-01-02 03:00 UTC" in watched.look(61)


def test_a_run_that_is_dated_in_the_future_is_named_until_its_date(
    session: Session,
    accepted: Callable[..., JobRecord],
    watched: Watched,
    bundle: Callable[..., Any],
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(database, "airflow_health", lambda: {"scheduler": "healthy"})
    probe = service_probes(bundle().settings, store)["Airflow"]
    assert probe.look() == "scheduler are healthy"
    record = accepted()
    tomorrow = datetime(2100, 1, 2, 3, tzinfo=UTC)
    run_id = submission_run_id(1, record.run_key)
    add_run(session, run_id, (tomorrow, tomorrow), state="running")
    assert "The system clock was set back, and the run is dated 2100-01-02 03:00 UTC" in watched.look()
    with pytest.raises(PlatformError, match=r"dmls\.lab\.iris are dated up to 2100-01-02 03:00 UTC"):
        probe.look()
    session.execute(update(DagRun).values(run_after=record.admitted_at, logical_date=record.admitted_at))
    assert watched.look(11) == "Accepted."


def test_a_retired_job_whose_run_waits_for_an_approval_is_named(
    session: Session, accepted: Callable[..., JobRecord], watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted()
    assert watched.look() == "Accepted."
    monkeypatch.setattr(database, "unanswered_approvals", lambda _: {DAG})
    assert watched.look(11) == "Accepted."
    Registry(watched.store).retire("lab", "iris")
    assert "its last run waits for an approval" in watched.look(11)


def test_a_damaged_record_is_told_of_and_the_job_keeps_its_dag(
    session: Session,
    accepted: Callable[..., JobRecord],
    bundle: Callable[..., Any],
    store: Store,
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "dmls_core.airflow.bundle.bundle.LIST_SECONDS", 0
    )  # others than DMLS change the registry
    record = accepted()
    made = bundle()
    made.initialize()
    key = "registry/jobs/lab/iris.json"
    good = store.get(key)
    store.put(key, b"{")
    made.refresh()
    status = read_status(store, "lab", "iris")
    assert status is not None
    assert status.message.startswith("Accepted.; later: The job's record in the registry cannot be read")
    assert key in status.message
    assert "restore it from a backup, or delete it and run the DAG dmls.intake" in status.message
    assert made.get_current_version().version
    assert "dmls.lab.iris" in "".join(path.read_text() for path in made.path.glob("shard_*.json"))

    store.put(key, good)
    clock.now += 11
    made.refresh()
    status = read_status(store, "lab", "iris")
    assert status is not None
    assert status.message == "Accepted."
    assert Registry(store).job("lab", "iris") == record


def test_after_a_damaged_record_is_deleted_the_submission_gets_a_new_version(store: Store) -> None:
    store.put("incoming/lab/iris/data.csv", b"a,b,y\n" + b"1,2,x\n2,3,z\n" * 20)
    store.put("incoming/lab/iris/spec.toml", SPEC)
    first = admit(store, "lab", "iris").record
    assert admit(store, "lab", "iris").unchanged
    store.delete("registry/jobs/lab/iris.json")
    again = admit(store, "lab", "iris")
    assert again.state == "accepted"
    assert first is not None
    assert again.record is not None
    assert (again.record.run_key, again.record.version) == (first.run_key, 2), "Airflow has the run of 1"


def test_a_dead_service_is_named_in_the_status_of_the_platform(
    session: Session, watched: Watched, store: Store
) -> None:
    alive = []

    def look() -> str:
        if not alive:
            raise OSError("<connection> refused")
        return "1.0"

    watched.probes["Triton dead"] = Probe("there", look, "start it again")
    watched.look()
    page = store.get("incoming/_status.md").decode()
    assert "Triton dead is broken: &lt;connection&gt; refused. Remedy: start it again." in page
    watched.look(11)
    assert store.get("incoming/_status.md").decode() == page, "it is written when something has changed"
    alive.append(True)
    watched.look(11)
    assert "All its services respond" in store.get("incoming/_status.md").decode()
    assert find_submissions(store) == []


def test_a_store_that_refuses_to_write_is_broken(
    session: Session, store: Store, bundle: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = service_probes(bundle().settings, store)["Store"]
    assert [health.state for health in probe_all({"full": probe}, 30)] == ["ok"]
    assert list(store.list("")) == []

    def refuse(*_: object, **__: object) -> None:
        raise StoreError("No space left on device")

    monkeypatch.setattr(LocalStore, "put", refuse)
    (health,) = probe_all({"full": probe}, 30)
    assert health.state == "broken"
    assert "not writable: No space left" in health.message
    assert "free space" in health.hint
