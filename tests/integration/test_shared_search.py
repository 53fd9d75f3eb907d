"""A search by several real processes over a real PostgreSQL: exact, and none is missed when it dies."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from dmls_core.devstack.doctor.services import check_own_study
from dmls_core.devstack.postgres import make_databases, superuser
from dmls_core.search.optimize import search
from tests.services.postgres_server import PostgresServer
from tests.support.shared_worker import forest, work

# Each worker is a process of its own, forked from one that has imported what all of them need: that import
# takes longer than most of these searches.
WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(["pytest", "tests.support.shared_worker"])

Start = Callable[..., ForkServerProcess]


@pytest.fixture
def start(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start workers over an empty database; what still runs in the end is killed."""
    postgres.empty()
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    started: list[ForkServerProcess] = []

    def _start(worker: int, workers: int, n_trials: int, **more: Any) -> ForkServerProcess:
        wanted = {"worker": worker, "workers": workers, "n_trials": n_trials} | more
        process = WORKERS.Process(target=work, args=(postgres.study_url, tmp_path, wanted))
        process.start()
        started.append(process)
        return process

    yield _start
    for process in started:
        process.kill()
        process.join()


def ended(folder: Path, *processes: ForkServerProcess) -> None:
    """Wait for all to end well."""
    for process in processes:
        process.join(300)
        assert process.exitcode == 0, (folder / f"errors.{process.pid}").read_text()


def end(process: ForkServerProcess, how: signal.Signals) -> None:
    """End a process by a signal."""
    assert process.pid
    os.kill(process.pid, how)
    process.join(60)
    assert process.exitcode


def trials(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "trials").glob("*.json"))]


def fits(folder: Path) -> Counter[int]:
    """Return how often each number was begun."""
    return Counter(int(path.name.split(".")[0]) for path in (folder / "fits").iterdir())


def wait_for(condition: Callable[[], bool], *processes: ForkServerProcess) -> None:
    late = time.monotonic() + 240
    while not condition():
        assert all(process.exitcode in (None, 0) for process in processes)
        assert time.monotonic() < late
        time.sleep(0.02)


@pytest.mark.parametrize(
    "workers", [2, pytest.param(4, marks=pytest.mark.nightly("`make test` does it with two workers"))]
)
def test_n_trials_is_met_exactly_and_no_number_runs_twice(start: Start, tmp_path: Path, workers: int):
    ended(tmp_path, *(start(worker, workers, 23) for worker in range(workers)))

    assert [trial["number"] for trial in trials(tmp_path)] == list(range(23))
    assert fits(tmp_path) == Counter(range(23))
    pids = {path.name.split(".")[1] for path in (tmp_path / "fits").iterdir()}
    assert len(pids) > 1


def test_a_killed_workers_trial_is_taken_over_by_its_number(start: Start, tmp_path: Path):
    leader = start(0, 2, 8, seconds=0.6)
    helper = start(1, 2, 8, seconds=0.6)

    def at_work() -> bool:
        mine = list((tmp_path / "fits").glob(f"*.{helper.pid}"))
        return any(not path.read_text() for path in mine)

    wait_for(at_work, leader, helper)
    end(helper, signal.SIGKILL)
    ended(tmp_path, leader)

    cut_off = [
        int(path.name.split(".")[0])
        for path in (tmp_path / "fits").glob(f"*.{helper.pid}")
        if not path.read_text()
    ]
    assert len(cut_off) == 1
    assert [trial["number"] for trial in trials(tmp_path)] == list(range(8))
    assert fits(tmp_path) == Counter(range(8)) + Counter(cut_off)


def test_a_worker_that_is_asked_to_end_leaves_its_trial_at_once(start: Start, tmp_path: Path):
    # A grace far longer than the test: nothing waits for it.
    alone = start(0, 2, 4, seconds=3, grace=3600)
    wait_for(lambda: bool(list((tmp_path / "fits").glob("0.*"))), alone)
    end(alone, signal.SIGINT)

    ended(tmp_path, start(0, 2, 4, seconds=0.05, grace=3600))

    assert [trial["number"] for trial in trials(tmp_path)] == list(range(4))


def test_a_helper_that_never_starts_is_not_waited_for(start: Start, tmp_path: Path):
    ended(tmp_path, start(0, 4, 5))

    assert [trial["number"] for trial in trials(tmp_path)] == list(range(5))


def test_kept_trials_are_not_paid_again_by_a_database_that_knows_nothing(
    start: Start, postgres: PostgresServer, tmp_path: Path
):
    ended(tmp_path, start(0, 2, 6))
    before = trials(tmp_path)
    postgres.empty()

    ended(tmp_path, start(0, 2, 9), start(1, 2, 9))

    after = trials(tmp_path)
    assert after[:6] == before
    assert fits(tmp_path) == Counter(range(9))


def test_the_study_goes_with_the_result_and_no_late_helper_brings_it_back(
    start: Start, postgres: PostgresServer, tmp_path: Path
):
    ended(tmp_path, start(0, 2, 3, remove=True))
    assert postgres.rows("SELECT count(*) FROM studies") == [(0,)]

    ended(tmp_path, start(1, 2, 3))

    assert postgres.rows("SELECT count(*) FROM studies") == [(0,)]
    assert fits(tmp_path) == Counter(range(3))


def test_workers_prune_by_each_others_trials(start: Start, tmp_path: Path):
    ended(tmp_path, *(start(worker, 2, 16, strategy="halving") for worker in range(2)))

    states = Counter(trial["state"] for trial in trials(tmp_path))
    assert states["complete"] >= 1
    assert states["pruned"] >= 4
    assert states.total() == 16


@pytest.mark.nightly("`test_helpers_that_come_and_go_change_nothing_in_a_forests_search` shares one, too")
def test_two_workers_search_a_forest_as_one_does(start: Start, tmp_path: Path):
    ended(tmp_path, *(start(worker, 2, 12, forest=True) for worker in range(2)))

    _, alone = search([forest(12)], 12)
    kept = trials(tmp_path)
    assert [(t["number"], t["state"], t["params"], t["value"], t["message"]) for t in kept] == [
        (t.number, t.state, t.params, t.value, t.message) for t in alone.trials
    ]
    assert Counter(trial["state"] for trial in kept)["complete"] == 1
    assert max(trial["steps"] for trial in kept) > 24


def test_helpers_that_come_and_go_change_nothing_in_a_forests_search(start: Start, tmp_path: Path):
    (tmp_path / "leave").touch()
    leader = start(0, 8, 12, forest=True)
    ended(tmp_path, *(start(worker, 8, 12, forest=True) for worker in (1, 2)))
    (tmp_path / "leave").unlink()
    ended(tmp_path, leader, start(1, 8, 12, forest=True))

    _, alone = search([forest(12)], 12)
    assert [(t["number"], t["state"], t["params"], t["value"]) for t in trials(tmp_path)] == [
        (t.number, t.state, t.params, t.value) for t in alone.trials
    ]


def test_two_models_compete_over_two_workers(start: Start, tmp_path: Path):
    models = ["extra-trees-classifier", "random-forest-classifier"]

    ended(tmp_path, *(start(worker, 2, 12, models=models) for worker in range(2)))

    kept = trials(tmp_path)
    assert [trial["number"] for trial in kept] == list(range(12))
    assert fits(tmp_path) == Counter(range(12))
    # Three for each, then the rest for the one that is better by design.
    assert Counter(trial["model"] for trial in kept) == {
        "extra-trees-classifier": 3,
        "random-forest-classifier": 9,
    }


def test_a_helper_leaves_after_a_trial_when_it_is_needed_elsewhere(start: Start, tmp_path: Path):
    (tmp_path / "leave").touch()
    helper = start(1, 2, 6)
    ended(tmp_path, helper)
    assert len(trials(tmp_path)) == 1

    # The leader stays, and finishes what was asked for.
    ended(tmp_path, start(0, 2, 6))

    assert [trial["number"] for trial in trials(tmp_path)] == list(range(6))
    assert fits(tmp_path) == Counter(range(6))


def test_time_that_is_up_ends_all_workers(start: Start, tmp_path: Path):
    ended(tmp_path, *(start(worker, 2, 500, seconds=0.3, timeout=4) for worker in range(2)))
    count = len(trials(tmp_path))
    assert 1 <= count < 500

    # What was paid counts again: 0.3 s of a trial, shared by two.
    ended(tmp_path, start(0, 2, 500, seconds=0.3, timeout=0.1))
    assert len(trials(tmp_path)) == count


def test_the_leader_ends_though_a_trial_was_lost_when_the_time_was_up(start: Start, tmp_path: Path):
    helper = start(1, 2, 500, seconds=2, grace=2)
    wait_for(lambda: bool(list((tmp_path / "fits").glob("0.*"))), helper)
    end(helper, signal.SIGKILL)

    ended(tmp_path, start(0, 2, 500, seconds=0.05, grace=2, timeout=0))

    assert trials(tmp_path) == []


def test_the_doctor_sees_whether_trainers_may_keep_their_study(postgres: PostgresServer):
    postgres.empty()
    well = check_own_study(postgres.context)
    with superuser(postgres.context) as connection:
        connection.execute("DROP DATABASE optuna WITH (FORCE)")
    gone = check_own_study(postgres.context)
    make_databases(postgres.context)

    assert (well.state, gone.state) == ("ok", "broken")
    assert "does not exist" in gone.message
    assert all(postgres.context.secret("optuna_db_password") not in check.message for check in (well, gone))
