"""Whether a candidate takes the champion's place, and what the page that asks a person says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dmls_core.airflow.job import Job
from dmls_core.airflow.run_inputs import RunInputs
from dmls_core.airflow.tasks.approve import side_by_side
from dmls_core.airflow.tasks.base import JobRun
from dmls_core.airflow.tasks.decision import Decision, decide
from dmls_core.models import load_spec
from dmls_core.tracking import Champion

SPEC = """model = "random-forest-classifier"
[columns]
target = "y"
[deploy]
mode = "{mode}"
"""
CHAMPION = Champion(version=3, run_key="c" * 16, until="2026-01-12T00:00:00+00:00")
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
    "note": "The champion was trained on none of these rows.",
}


@pytest.fixture
def make(accept) -> Callable[..., JobRun]:
    """Make a run; ``end``: of its interval."""

    def _make(mode: str = "auto", *, end: str = "", **fields: Any) -> JobRun:
        content = SPEC.format(mode=mode).encode()
        inputs = RunInputs("a" * 16, (), ("2026-01-05T00:00:00+00:00", end), None) if end else None
        job = Job(accept("lab", "iris", spec=content), load_spec(content), inputs, **fields)
        return JobRun(job, {}, None)  # type: ignore[arg-type]

    return _make


def evaluated(comparison: dict[str, Any] | None = None, *, good: bool = True) -> dict[str, Any]:
    return {"score": 0.9, "metric": "accuracy", "good_enough": good, "comparison": comparison}


def decided(run: JobRun, found: dict[str, Any], champion: Champion | None = CHAMPION) -> Decision:
    decision = decide(run, found, champion)
    assert decision is not None
    return decision


def test_the_first_model_is_deployed_and_a_later_one_if_the_rule_holds(make):
    assert decided(make(), evaluated(), None).deploy
    won = decided(make(), evaluated(WIN))
    assert (won.deploy, won.by, won.reason, won.champion_version) == (True, "rule", WIN["reason"], 3)
    assert not decided(make(), evaluated(WIN | {"better": False})).deploy


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (None, "not compared"),
        (WIN | {"champion_version": 2}, "compared with version 2, and the champion is version 3"),
        (WIN | {"comparable": False, "reason": "not comparable: columns"}, "not comparable: columns"),
    ],
)
def test_what_cannot_be_compared_keeps_the_champion_unless_a_user_asks(make, comparison, words):
    kept = decided(make(), evaluated(comparison))
    assert (kept.deploy, kept.word) == (False, "keep")
    assert words in kept.reason
    asked = decided(make(deploy=True), evaluated(comparison))
    assert (asked.deploy, asked.by) == (True, "request")


def test_never_and_a_poor_score_are_final_even_where_a_user_asks(make):
    assert "never" in decided(make("never", deploy=True), evaluated(WIN)).reason
    assert "min_metric" in decided(make(deploy=True), evaluated(WIN, good=False)).reason


def test_a_person_decides_in_manual_mode_but_not_on_a_poor_score(make):
    assert decide(make("manual"), evaluated(WIN), CHAMPION) is None
    assert decide(make("manual", deploy=True), evaluated(WIN), CHAMPION) is None
    assert not decided(make("manual"), evaluated(WIN, good=False)).deploy


def test_a_backfill_and_an_earlier_interval_are_deployed_on_request_alone(make):
    backfill = {"end": "2026-01-19T00:00:00+00:00", "backfill": True}
    assert "backfill" in decided(make(**backfill), evaluated(WIN)).reason
    assert decided(make(**backfill, deploy=True), evaluated(WIN)).deploy
    earlier = "2026-01-11T00:00:00+00:00"
    assert "later data" in decided(make(end=earlier), evaluated(WIN)).reason
    assert decided(make(end="2026-01-19T00:00:00+00:00"), evaluated(WIN)).deploy


def test_the_page_shows_both_models(make):
    told = side_by_side(make("manual"), evaluated(WIN), CHAMPION)
    assert "| champion, version 3 | 0.8000 |" in told
    assert "| **candidate** | **0.9000** |" in told
    assert "| 95 % interval | +0.0500 to +0.1500 |" in told
    assert told.endswith(WIN["note"])
    assert "no champion yet" in side_by_side(make("manual"), evaluated(), None)
    assert "not compared" in side_by_side(make("manual"), evaluated(), CHAMPION)
