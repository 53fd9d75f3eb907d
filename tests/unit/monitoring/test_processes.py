"""When a process that ended is reloaded, when not, and what its record says; Triton is played."""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest

from dmls_core.errors import InvalidRequestError, ServingError, ServingTimeoutError
from dmls_core.monitoring import processes
from dmls_core.monitoring.processes import PAUSES, ProcessWatch
from dmls_core.serving import Deployment, Repository
from dmls_core.serving.deployment.processes import ROWS
from dmls_core.serving.formats.treelite.in_process import LARGEST_ROWS
from dmls_core.serving.repository.intents import Intent, clear_intent, read_intent, write_intent
from dmls_core.store import open_store, read_process_failures
from tests.support.model_folder import toy_model_folder
from tests.unit.serving.conftest import PlayedTriton

MODEL, TABLE = "lab.iris", "lab.iris.table"


class Triton(PlayedTriton):
    """Answers as Triton does if processes of models are dead."""

    def __init__(self, repository, address="triton:8000"):
        super().__init__(repository)
        self.addresses = {"http": address, "grpc": address.replace("8000", "8001")}
        self.dead: dict[str, Exception] = {}
        self.heals, self.kills = True, False
        self.rows: dict[str, int] = {}

    @contextmanager
    def again(self, _timeout):
        yield self

    def loaded(self):
        if self.down:
            raise ServingError("Triton does not answer")
        return dict(self.served)

    def config(self, _name):
        return {"instance_group": [{"count": 2}]}

    def infer_tensors(self, name, tensors, **_options):
        self.rows[name] = len(next(iter(tensors.values())))
        if name in self.dead:
            raise self.dead[name]

    def load(self, name):
        super().load(name)
        if self.heals:
            self.dead.pop(name, None)
        if self.kills:
            self.down = True
            raise ServingError("Triton does not answer")


@pytest.fixture(autouse=True)
def toy_checkpoints(monkeypatch):
    """Skip the check of checkpoints, which are no forests here."""
    monkeypatch.setattr("dmls_core.serving.deployment.acceptance.check_model", lambda *_: None)


@pytest.fixture
def clock(monkeypatch):
    """The time, which a test moves on."""

    class Clock(datetime):
        now_is = datetime.now(UTC)

        @classmethod
        def now(cls, _=None):
            return cls.now_is

    monkeypatch.setattr(processes, "datetime", Clock)
    return Clock


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "root"))


@pytest.fixture
def repository(tmp_path):
    return Repository(str(tmp_path / "models"))


@pytest.fixture
def server(repository, tmp_path, monkeypatch):
    server = Triton(repository)
    played = PlayedTriton(repository)
    Deployment(repository, played, MODEL).deploy(toy_model_folder(tmp_path / "run"))
    server.served = {name: version for name, version in played.served.items() if "candidate" not in name}
    return server


@pytest.fixture
def watch(store, repository):
    return ProcessWatch(store, repository)


def dead(message="Stub process is not healthy"):
    return ServingError(message)


def failures(store):
    return read_process_failures(store, MODEL).failures


@pytest.mark.parametrize("process", [MODEL, TABLE])
def test_a_dead_process_is_reloaded_on_its_server_alone(watch, store, repository, server, process):
    other = Triton(repository, "other:8000")
    other.served = dict(server.served)
    server.dead[process] = dead()
    result = watch.look([server, other])
    assert result.repaired == [f"{process}: reloaded on triton:8000, since its process ended"]
    assert (server.loads, other.loads) == (1, 0)
    (failure,) = failures(store)
    ended = rf"the process of {process} on triton:8000 ended \(noticed \S+ \S+ UTC\)"
    assert re.fullmatch(rf"{ended} and was reloaded \S+ \S+ UTC", failure.text)
    assert read_process_failures(store, MODEL).reloads == 1
    assert read_intent(repository.store, MODEL) is None
    assert watch.look([server, other]).repaired == []
    assert LARGEST_ROWS < other.rows[TABLE] == ROWS
    assert watch.requests["other:8001", MODEL] == 2 * watch.requests["other:8001", TABLE] == 8


@pytest.mark.parametrize("answer", [ServingTimeoutError("busy"), InvalidRequestError("no such column")])
def test_a_busy_model_and_one_that_refuses_the_rows_are_left_alone(watch, store, server, answer):
    server.dead[TABLE] = answer
    assert watch.look([server]).repaired == []
    assert (server.loads, failures(store)) == (0, ())


def test_a_server_that_is_down_and_models_of_others_are_left_alone(watch, store, server):
    server.served |= {"resnet": 1, "lab.other": 1, f"{MODEL}.candidate": 2}
    server.dead = dict.fromkeys(("resnet", "lab.other", f"{MODEL}.candidate"), dead())
    down = Triton(None, "down:8000")
    down.down = True
    result = watch.look([server, down])
    assert (result.repaired, result.failures, failures(store)) == ([], [], ())


def test_a_model_that_is_being_deployed_is_left_to_its_publisher(watch, store, repository, server):
    server.dead[MODEL] = dead()
    with repository.lock(MODEL):
        assert watch.look([server]).failures == []
    write_intent(repository.store, MODEL, Intent(2, 1))
    assert watch.look([server]).failures == []
    assert (server.loads, failures(store)) == (0, ())
    clear_intent(repository.store, MODEL)
    assert watch.look([server]).repaired != []


def test_a_process_that_keeps_ending_is_reloaded_ever_later_and_then_no_more(watch, store, server, clock):
    server.heals = False
    server.dead[TABLE] = dead()
    made = []
    for second in [*range(0, 300, 5), *range(300, 3000, 300)]:
        clock.now_is += timedelta(seconds=5 if second <= 300 else 300)
        before = server.loads
        watch.look([server])
        made += [second] * (server.loads - before)
    assert made == [0, 5, 35, 95, 215]
    assert len(made) == len(PAUSES)
    (failure,) = failures(store)
    assert "could not be reloaded: lab.iris.table was loaded again, but does not answer" in failure.text
    clock.now_is += timedelta(hours=1)
    server.heals = True
    assert watch.look([server]).repaired != [], "attempts count for an hour"


def test_a_model_that_ends_its_server_is_not_loaded_again_on_any(watch, store, repository, server, clock):
    server.dead[MODEL] = dead()
    server.kills = True
    assert watch.look([server]).failures != []
    other = Triton(repository, "other:8000")
    other.served, other.dead = {MODEL: 1, TABLE: 1}, {MODEL: dead()}
    clock.now_is += timedelta(minutes=20)
    watch.look([other, server])
    assert (server.loads, other.loads) == (1, 0)
    assert "See Triton's log, then roll back" in failures(store)[-1].text


def test_what_another_reloaded_or_stopped_is_no_longer_open(watch, store, repository, server):
    server.heals = False
    server.dead[TABLE] = dead()
    assert watch.look([server]).failures != []
    server.dead.clear()
    ProcessWatch(store, repository).look([server])
    assert [bool(failure.reloaded) for failure in failures(store)] == [True]
    server.dead[TABLE] = dead()
    watch.look([server])
    repository.serve(MODEL, None)
    server.served.clear()
    watch.look([server])
    assert len(failures(store)) == 1, "that of a model that is not served is forgotten"


def test_where_the_triggerer_may_not_load_the_next_caller_may(watch, store, repository, server, monkeypatch):
    server.dead[TABLE] = dead()
    with monkeypatch.context() as patch:
        patch.setattr(server, "unload", Mock(side_effect=ServingError("restricted")))
        assert watch.look([server]).failures == [f"{TABLE} on triton:8000: restricted"]
    assert failures(store)[0].text.endswith("and could not be reloaded: restricted")
    assert ProcessWatch(store, repository).look([server]).repaired != []


def test_a_model_that_cannot_be_loaded_is_left_to_the_repair(watch, repository, server, monkeypatch):
    server.dead[MODEL] = dead()
    monkeypatch.setattr(server, "load", Mock(side_effect=ServingError("no memory")))
    assert watch.look([server]).failures == [f"{MODEL} on triton:8000: no memory"]
    assert read_intent(repository.store, MODEL) == Intent(1, 1)


def test_the_shared_process_is_reloaded(watch, store, repository, server, monkeypatch):
    repository.store.put("dmls-shared/config.pbtxt", b"x")
    states = iter([False, False, True, True])
    monkeypatch.setattr("dmls_core.serving.deployment.processes.process_runs", lambda _: next(states))
    restarted = []
    monkeypatch.setattr("dmls_core.serving.deployment.processes.restart_process", restarted.append)
    assert watch.look([server]).repaired == ["dmls-shared: reloaded on triton:8000, since its process ended"]
    assert restarted == [server]
    assert read_process_failures(store, "dmls-shared").reloads == 1
