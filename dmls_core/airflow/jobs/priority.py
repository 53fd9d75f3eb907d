"""The order in which trainers get slots when more wait than a pool has.

Airflow starts the waiting task with the largest weight. Here a weight stands for a time: that at which the
run entered the queue, or up to ``MAX_DELAY_SECONDS`` later for a backfill and for a team with
waiting runs. So a team that submits a hundred jobs at once delays itself and not the others, and no run waits
forever: only runs that entered the queue before its time can overtake it.

Additional trainers of a search, its helpers, have the smallest weights: they get a slot only if no run waits
for its first trainer. The second trainer of every search goes before the third of any.

The weight stays when the task resumes for its trainer's result, and needs a slot again for seconds. Bounded
delays keep that short, too.

Airflow's database stores the strategy's class path.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy

from dmls_core.store import layout

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

SPACING_SECONDS = 300
"""How much later a run's time is for each waiting run of its team, divided by the team's share."""

MAX_DELAY_SECONDS = 3600
"""Limit of that delay, and how much later a backfill's time is."""

EPOCH_SECONDS = 1_767_225_600
"""2026-01-01 in UTC."""

_MAX_WEIGHT = 2**31 - 1
"""Of the database's integer: the seconds of 68 years."""

_MAX_HELPER_WEIGHT = 1000
"""Weight of a search's second trainer; those of runs reach it in 68 years."""


class LeaderPriorityStrategy(PriorityWeightStrategy):
    """Start waiting runs in the order of their times."""

    def get_weight(self, ti: TaskInstance) -> int:
        """Return the weight of one mapped ``search`` task; the one with map index 0 is the leader."""
        if ti.map_index > 0:
            return helper_weight(ti.map_index)
        team, _ = layout.parse_dag_id(ti.dag_id)
        waiting, last = _read_waiting(team)
        return queue_weight(
            time.time(), waiting, last, _share(team), backfill=ti.run_id.startswith("backfill__")
        )


LEADER_PRIORITY = f"{LeaderPriorityStrategy.__module__}.{LeaderPriorityStrategy.__qualname__}"


def queue_weight(now: float, waiting: int, last: int | None, share: float, *, backfill: bool) -> int:
    """Return the weight of a run that enters the queue at ``now``, in seconds since 1970.

    Args:
        now: the time at which it enters the queue.
        waiting: number of waiting runs of its team, without backfills.
        last: the smallest weight of these runs.
        share: the team's share; one with the share 2 may have twice as many runs waiting for the same delay.
        backfill: whether it is a backfill.
    """
    if backfill:
        return weight_at(now + MAX_DELAY_SECONDS)
    weight = weight_at(now + min(waiting * SPACING_SECONDS / share, MAX_DELAY_SECONDS))
    return weight if last is None else min(weight, last)


def helper_weight(number: int) -> int:
    """Return the weight of an additional trainer; ``number`` counts from 1."""
    return max(_MAX_HELPER_WEIGHT - number, 1)


def weight_at(moment: float) -> int:
    """Return the weight that stands for a time in seconds since 1970: the earlier, the larger."""
    return min(max(_MAX_WEIGHT - int(moment - EPOCH_SECONDS), _MAX_HELPER_WEIGHT), _MAX_WEIGHT)


def _share(team: str) -> float:
    from dmls_core.airflow.settings import airflow_settings

    return airflow_settings().team_shares.get(team, 1.0)


def _read_waiting(team: str) -> tuple[int, int | None]:
    from dmls_core.airflow import database

    # Not the thread's session: its owner, the scheduler, has an open transaction.
    with database.create_session(scoped=False) as session:
        return database.waiting_searches(session, team)
