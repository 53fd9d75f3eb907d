"""Answer Airflow's approval of a model over its REST API.

``dmls approve`` and the web page repeat the answer until the task has settled: Airflow can lose an answer
that is given within moments of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Answer = Literal["Approve", "Reject"]
"""Options of Airflow's approval; the first lets a run continue."""

REJECT: Answer = "Reject"

PAUSE_SECONDS = 2.0
"""Between request and answer; an earlier answer makes the scheduler retry the task as if it were killed."""

_PAUSED = ("awaiting_input", "deferred")
"""Task states that an answer wakes; after an earlier answer the run would wait forever."""

_UNSETTLED = frozenset({"none", "scheduled", "queued", "running", "up_for_retry", *_PAUSED})


def can_be_answered(asked: Mapping[str, Any], answer: Answer) -> bool:
    """Return whether an entry of Airflow's ``hitlDetails`` accepts this answer now."""
    paused = asked["task_instance"]["state"] in _PAUSED
    return paused and answer in asked["options"] and not asked["response_received"]


def has_settled(state: str | None) -> bool:
    """Return whether an answer took effect, by the state of the task that requested it."""
    return state is not None and state not in _UNSETTLED


def body_of(answer: Answer) -> dict[str, Any]:
    """Return the body of the ``PATCH`` of ``hitlDetails``."""
    return {"chosen_options": [answer], "params_input": {}}
