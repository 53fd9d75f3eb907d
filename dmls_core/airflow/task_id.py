"""Names of the tasks in a job's DAG."""

from __future__ import annotations

from enum import StrEnum


class TaskId(StrEnum):
    """Task ids of a job's DAG, in the order in which the tasks run."""

    VALIDATE = "validate"
    PLAN = "plan"
    SEARCH = "search"
    EVALUATE = "evaluate"
    REGISTER = "register"
    APPROVE = "approve"
    STAGE = "stage"
    PROMOTE = "promote"
