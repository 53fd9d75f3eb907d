"""The order in which waiting trainers get slots."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from airflow.serialization.serialized_objects import DagSerialization
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.airflow.jobs import job_dag, priority
from dmls_core.airflow.jobs.priority import (
    EPOCH_SECONDS,
    MAX_DELAY_SECONDS,
    SPACING_SECONDS,
    LeaderPriorityStrategy,
    queue_weight,
    weight_at,
)
from dmls_core.airflow.shards import shard_file

NOW = EPOCH_SECONDS + 30_000_000


@pytest.fixture
def weight(monkeypatch):
    """Return the weight of a task of a team with nothing in the queue."""
    monkeypatch.setattr(priority, "_read_waiting", lambda *_: (0, None))
    monkeypatch.setattr(priority.time, "time", lambda: NOW)

    def _weight(run_id: str, index: int = 0) -> int:
        task = SimpleNamespace(dag_id="dmls.lab.iris", run_id=run_id, map_index=index)
        return LeaderPriorityStrategy().get_weight(task)

    return _weight


def test_backfills_go_behind_the_runs_of_the_next_hour(weight):
    assert weight("submission-1__0123") == weight_at(NOW)
    assert weight("backfill__2026-11-01T00:00:00+00:00") == weight_at(NOW + 3600)


def test_helpers_go_behind_all_runs_and_the_second_trainer_of_each_before_the_third(weight):
    helpers = [weight("submission-1__0123", index) for index in (1, 2, 255)]
    assert helpers == sorted(helpers, reverse=True)
    assert 0 < helpers[-1] < helpers[0] < weight_at(EPOCH_SECONDS * 9) <= weight("backfill__2026-11-01")


def test_weights_fit_the_database():
    assert [weight_at(moment) for moment in (0, EPOCH_SECONDS)] == [2**31 - 1] * 2
    assert weight_at(NOW) == weight_at(NOW + 1) + 1


BACKFILLING = 3
"""A team that starts backfills only."""


@dataclass
class Run:
    """A run in the queue; ``share`` is its team's."""

    team: int
    submitted: int
    weight: int
    backlog: int
    backfill: bool = False


def simulate(arrivals: list[tuple[int, int]], served_every: int, shares: list[float]) -> list[Run]:
    """Return the runs in the order in which one slot takes them; it is free every so many seconds."""
    waiting: list[Run] = []
    served: list[Run] = []
    pending = sorted((when, team) for when, team in arrivals)
    moment = 0
    while pending or waiting:
        moment += served_every
        while pending and pending[0][0] <= moment:
            when, team = pending.pop(0)
            own = [run.weight for run in waiting if run.team == team and not run.backfill]
            backfill = team == BACKFILLING
            last = min(own, default=None)
            weight = queue_weight(NOW + when, len(own), last, shares[team], backfill=backfill)
            waiting.append(Run(team, when, weight, len(own), backfill))
        if waiting:
            first = max(waiting, key=lambda run: (run.weight, -run.submitted))
            waiting.remove(first)
            served.append(first)
    return served


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3)), min_size=1, max_size=60),
    served_every=st.integers(1, 900),
    shares=st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=4, max_size=4),
)
def test_no_run_waits_for_more_than_those_submitted_before_its_time(arrivals, served_every, shares):
    served = simulate(arrivals, served_every, shares)

    for place, run in enumerate(served):
        most = max(other.backlog for other in served if other.team == run.team)
        delay = min(most * SPACING_SECONDS / shares[run.team], MAX_DELAY_SECONDS)
        bound = run.submitted + (MAX_DELAY_SECONDS if run.backfill else delay) + 1
        overtakers = [other for other in served[:place] if other.submitted > run.submitted]
        assert all(other.submitted <= bound for other in overtakers)
        assert all(other.team != run.team for other in overtakers)


def test_a_team_that_submits_much_at_once_delays_itself():
    flood = [(0, 0)] * 50
    order = simulate([*flood, (700, 1), (800, 2)], served_every=300, shares=[1.0, 1.0, 1.0])

    places = {run.team: place for place, run in enumerate(order) if run.team}
    assert places[1] <= 4
    assert places[2] <= 5


def test_a_larger_share_lets_a_team_have_more_runs_before_the_others():
    def place(share: float) -> int:
        order = simulate([(0, 0)] * 30 + [(600, 1)], served_every=300, shares=[share, 1.0, 1.0])
        return next(place for place, run in enumerate(order) if run.team == 1)

    assert place(1.0) < place(4.0) < 30


def test_the_scheduler_reads_the_strategy_from_the_serialized_dag(job, bundle):
    job(2)
    made = bundle()
    made.initialize()
    dag = job_dag.load_shard(str(shard_file(made.path, "dmls.lab.iris", 4)))["dmls.lab.iris"]

    again = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))

    assert isinstance(again.get_task("search").weight_rule, LeaderPriorityStrategy)
    assert again.get_task("evaluate").trigger_rule == "none_failed_min_one_success"
