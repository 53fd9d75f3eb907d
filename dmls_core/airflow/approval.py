"""Answer Airflow's approval of a model over its REST API: when an answer is accepted and takes effect.

``dmls deploy`` and the web page follow these rules. Both repeat the answer until the task has settled:
Airflow can lose an answer that is given within moments of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Answer = Literal["Approve", "Reject"]
"""Options of Airflow's approval; the first lets a run continue."""

PAUSE_SECONDS = 2.0
"""Pause between request and answer: the scheduler must see the task paused before the answer. Otherwise it
takes the task for a killed one, retries it, and requests the approval again."""

PAUSED = ("awaiting_input", "deferred")
"""States of a task that an answer wakes. Airflow stores an earlier answer without waking the task: the run
would wait forever."""

UNSETTLED = frozenset({"none", "scheduled", "queued", "running", "up_for_retry", *PAUSED})


def can_be_answered(asked: Mapping[str, Any], answer: Answer) -> bool:
    """Return whether an entry of Airflow's ``hitlDetails`` accepts this answer now."""
    paused = asked["task_instance"]["state"] in PAUSED
    return paused and answer in asked["options"] and not asked["response_received"]


def has_settled(state: str | None) -> bool:
    """Return whether an answer took effect, by the state of the task that requested it."""
    return state is not None and state not in UNSETTLED


def body_of(answer: Answer) -> dict[str, Any]:
    """Return the body of the ``PATCH`` of ``hitlDetails`` that gives an answer."""
    return {"chosen_options": [answer], "params_input": {}}
