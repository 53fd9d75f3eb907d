"""Airflow's question whether a model may be served: when it can be answered, and when the answer counts.

Whoever answers over Airflow's API keeps to this: ``dmls deploy`` from outside, the web page from within. Both
ask again until the task has settled, because an answer given within moments of the question can be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Answer = Literal["Approve", "Reject"]
"""Options of Airflow's approval; the first lets a run go on."""

PAUSE_SECONDS = 2.0
"""Between the question and the answer: the scheduler has to see the task's pause before the answer, or it
takes the task for a killed one, tries it once more, and asks again."""

PAUSED = ("awaiting_input", "deferred")
"""States of a task that an answer wakes. Given earlier, between the question and the pause, it is noted by
Airflow and wakes nobody: the run would wait for ever."""

UNSETTLED = frozenset({"none", "scheduled", "queued", "running", "up_for_retry", *PAUSED})


def can_be_answered(asked: Mapping[str, Any], answer: Answer) -> bool:
    """Say whether an entry of Airflow's ``hitlDetails`` waits for an answer and takes this one now."""
    paused = asked["task_instance"]["state"] in PAUSED
    return paused and answer in asked["options"] and not asked["response_received"]


def has_settled(state: str | None) -> bool:
    """Say whether Airflow has taken up an answer, by the state of the task that asked."""
    return state is not None and state not in UNSETTLED


def body_of(answer: Answer) -> dict[str, Any]:
    """Return the body of the ``PATCH`` of ``hitlDetails`` that gives an answer."""
    return {"chosen_options": [answer], "params_input": {}}
