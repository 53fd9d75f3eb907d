"""A trainer that is ended from outside: the status says whether it is retried."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from dmls_core.airflow.runners import TrainerOperator, trainer_operator


class Operator(TrainerOperator):
    def start(self, trainer, context):
        raise NotImplementedError


@pytest.fixture
def interrupted():
    """Kill a task that Airflow answers about as given; return whether a retry is announced."""

    def kill(answer, *, try_number: int = 1) -> bool:
        announced = []
        operator = Operator(task_id="search", plan={})
        operator._runner = SimpleNamespace(stop=lambda _: None)
        operator._reporter = SimpleNamespace(interrupted=lambda *, retried: announced.append(retried))
        task = {"dag_id": "dmls.lab.iris", "run_id": "run", "task_id": "search", "map_index": 0}
        operator._task = SimpleNamespace(
            **task, try_number=try_number, max_tries=2, get_task_states=lambda **_: answer()
        )
        operator.on_kill()
        (retried,) = announced
        return retried

    return kill


def test_a_task_that_a_user_ended_is_not_retried(interrupted):
    assert not interrupted(lambda: {"run": {"search_0": "failed"}})


def test_a_task_that_airflow_still_runs_is_retried(interrupted):
    assert interrupted(lambda: {"run": {"search_0": "running"}})
    assert interrupted(lambda: {"run": {"search_0": "restarting"}}), "a user cleared it"


def test_without_tries_left_it_is_not_retried(interrupted):
    assert not interrupted(lambda: {"run": {"search_0": "running"}}, try_number=3)


def test_without_an_answer_of_airflow_a_retry_is_expected(interrupted, monkeypatch):
    monkeypatch.setattr(trainer_operator, "ASK_SECONDS", 0.05)
    assert interrupted(threading.Event().wait)
