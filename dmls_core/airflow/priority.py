"""The order in which trainers get slots when more wait than a pool has.

Airflow's database stores the strategy's class path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

LEADER_WEIGHT = 6
"""Weight that Airflow itself gives the task ``search`` by the number of tasks after it."""

WORKER_WEIGHT = 1


class LeaderPriorityStrategy(PriorityWeightStrategy):
    """Start the first trainer of every waiting run before the second trainer of any run."""

    def get_weight(self, ti: TaskInstance) -> int:
        """Return the weight of one mapped ``search`` task; the one with map index 0 is the leader."""
        return WORKER_WEIGHT if ti.map_index > 0 else LEADER_WEIGHT


LEADER_PRIORITY = f"{LeaderPriorityStrategy.__module__}.{LeaderPriorityStrategy.__qualname__}"
