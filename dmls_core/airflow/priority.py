"""Which trainers go first where more wait than a pool has slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

LEADER = 6
"""What Airflow itself gives a search by the number of tasks that follow it."""

HELPER = 1


class LeadersFirst(PriorityWeightStrategy):
    """The first trainer of every waiting run goes before the second of any."""

    def get_weight(self, ti: TaskInstance) -> int:
        """Return the weight of a mapped search: the first of them leads."""
        return HELPER if ti.map_index > 0 else LEADER


LEADERS_FIRST = f"{LeadersFirst.__module__}.{LeadersFirst.__qualname__}"
"""The name under which the plugin registers it."""
