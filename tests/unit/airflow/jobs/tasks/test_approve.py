"""What the decision reads from a run, and what Airflow's approval shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import ApprovalOperator

from dmls_core.airflow.jobs.tasks import approve
from dmls_core.airflow.jobs.tasks.approve import ApproveOperator, candidate_of, comparison_table
from dmls_core.airflow.jobs.tasks.base import JobRun
from dmls_core.airflow.runs.job import Job
from dmls_core.airflow.runs.run_inputs import RunInputs
from dmls_core.models import load_spec
from dmls_core.tracking.decision import Candidate
from dmls_core.tracking.registry import RegisteredVersion

SPEC = b"""model = "random-forest-classifier"
[columns]
target = "y"
"""
CHAMPION = RegisteredVersion(version=3, run_key="c" * 16)
WIN: dict[str, Any] = {
    "metric": "accuracy",
    "champion_version": 3,
    "comparable": True,
    "better": True,
    "reason": "the challenger is better by 0.1",
    "champion_score": 0.8,
    "challenger_score": 0.9,
    "difference": 0.1,
    "interval": [0.05, 0.15],
    "probability": 0.99,
    "min_improvement": 0.0,
    "rows": 200,
    "conclusive": True,
}


def evaluated(comparison: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"score": 0.9, "metric": "accuracy", "good_enough": True, "comparison": comparison}


def table(comparison: dict[str, Any] | None, champion: RegisteredVersion | None = CHAMPION) -> str:
    found = evaluated(comparison)
    return comparison_table(found, Candidate("a" * 16, True, comparison), champion)


def test_the_candidate_has_the_interval_and_the_request_of_its_run(accept):
    end = "2026-01-19T00:00:00+00:00"
    inputs = RunInputs("a" * 16, (), ("2026-01-12T00:00:00+00:00", end), None)
    job = Job(accept("lab", "iris", spec=SPEC), load_spec(SPEC), inputs, backfill=True, deploy=True)
    found = candidate_of(JobRun(job, {}, None), evaluated(WIN))  # type: ignore[arg-type]
    assert found == Candidate("a" * 16, True, WIN, until=end, backfill=True, requested=True)


def test_the_approval_shows_both_models():
    text = table(WIN)
    assert "| champion, version 3 | 0.8000 |" in text
    assert "| **candidate** | **0.9000** |" in text
    assert "| 95 % interval | +0.0500 to +0.1500 |" in text
    assert text.endswith("The challenger is better by 0.1.")
    assert "no champion yet" in table(None, None)
    assert "not compared" in table(None)


def test_the_approval_shows_no_difference_without_a_verdict():
    text = table(WIN | {"conclusive": False, "better": False, "reason": "this does not say which is better"})
    assert "| champion, version 3 | 0.8000 |" in text
    assert "improvement" not in text
    assert "interval" not in text
    assert text.endswith("This does not say which is better.")


@pytest.mark.parametrize("mode", ["auto", "manual"])
@pytest.mark.parametrize("approvers", [[], ["ada"]], ids=["anyone", "ada"])
def test_approvers_of_a_team_are_asked_also_in_the_mode_auto(
    accept, monkeypatch: pytest.MonkeyPatch, mode: str, approvers: list[str]
):
    """A user who submits a spec with ``mode = "auto"`` cannot deploy alone."""
    spec = SPEC + f'[deploy]\nmode = "{mode}"\n'.encode()
    job = Job(accept("lab", "iris", spec=spec), load_spec(spec))
    warnings = ["*code* gives y away", "few rows"]
    results = {
        "evaluate": evaluated() | {"warnings": warnings},
        "register": {"url": "", "report": "", "model_version": 1},
    }
    settings = SimpleNamespace(mlflow_uri="", approvers={"lab": approvers})
    reporter = SimpleNamespace(links={}, report=lambda *_: None)
    run = SimpleNamespace(
        job=job, settings=settings, reporter=reporter, context={}, result_of=lambda task: results[task]
    )
    asked, bodies, decided = [], [], []
    monkeypatch.setattr(approve, "open_run", lambda _: run)
    monkeypatch.setattr(approve, "_is_retired", lambda _: False)
    monkeypatch.setattr(approve, "record_decision", lambda _, decision: decided.append(decision))
    monkeypatch.setattr("dmls_core.tracking.registry.champion_of", lambda *_: None)

    def ask(self: ApproveOperator, _: object) -> None:
        asked.append(self.assigned_users)
        bodies.append(self.body)

    monkeypatch.setattr(ApprovalOperator, "execute", ask)
    ApproveOperator(task_id="approve").execute({})
    if mode == "auto" and not approvers:
        assert ([decision.deploy for decision in decided], asked) == ([True], [])
    else:
        assert (decided, asked) == ([], [[{"id": "ada", "name": "ada"}] if approvers else None])
        assert "**2 warnings about this score:**\n\n- \\*code\\* gives y away\n- few rows\n" in bodies[0]


@pytest.mark.parametrize(
    ("event", "retired", "by", "deploy"),
    [
        ({"chosen_options": ["Approve"]}, False, "person", True),
        ({"chosen_options": ["Approve"]}, True, "retirement", False),
        ({"chosen_options": ["Reject"]}, True, "person", False),
        ({"chosen_options": ["Reject"], "timedout": True}, True, "retirement", False),
        ({"chosen_options": ["Reject"], "timedout": True}, False, "deadline", False),
    ],
)
def test_a_model_of_a_retired_job_is_not_deployed_even_if_a_person_approves_it(
    monkeypatch: pytest.MonkeyPatch, event: dict[str, Any], retired: bool, by: str, deploy: bool
):
    results = {"evaluate": {}, "register": {"model_version": 1}}
    run = SimpleNamespace(
        reporter=SimpleNamespace(report=lambda *_: None), result_of=lambda task: results[task]
    )
    decided, answers = [], []
    monkeypatch.setattr(approve, "open_run", lambda _: run)
    monkeypatch.setattr(approve, "_is_retired", lambda _: retired)
    monkeypatch.setattr(approve, "record_decision", lambda _, decision: decided.append(decision))
    monkeypatch.setattr(
        ApprovalOperator, "execute_complete", lambda _self, _, event: answers.append(event["chosen_options"])
    )
    ApproveOperator(task_id="approve").execute_complete({}, event)
    assert [(decision.by, decision.deploy) for decision in decided] == [(by, deploy)]
    assert answers == [["Approve"] if deploy else ["Reject"]]
