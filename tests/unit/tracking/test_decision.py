"""Whether a candidate becomes the champion."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_core.spec import Deploy
from dmls_core.tracking.decision import Candidate, Decision, decide
from dmls_core.tracking.registry import RegisteredVersion

CHAMPION = RegisteredVersion(version=3, run_key="c" * 16, until="2026-01-12T00:00:00+00:00")
WIN: dict[str, Any] = {
    "champion_version": 3,
    "comparable": True,
    "better": True,
    "reason": "the challenger is better by 0.1",
}
LATER, EARLIER = "2026-01-19T00:00:00+00:00", "2026-01-11T00:00:00+00:00"


def candidate(comparison: dict[str, Any] | None = None, *, good: bool = True, **fields: Any) -> Candidate:
    return Candidate("a" * 16, good, comparison, **fields)


def decided(found: Candidate, champion: RegisteredVersion | None = CHAMPION, mode: str = "auto") -> Decision:
    decision = decide(Deploy(mode=mode), found, champion)
    assert decision is not None
    return decision


def test_the_first_model_is_deployed_and_a_later_one_if_the_rule_holds():
    assert decided(candidate(), None).deploy
    won = decided(candidate(WIN))
    assert (won.deploy, won.by, won.reason, won.champion_version) == (True, "rule", WIN["reason"], 3)
    assert not decided(candidate(WIN | {"better": False})).deploy


@pytest.mark.parametrize(
    ("comparison", "words"),
    [
        (None, "not compared"),
        (WIN | {"champion_version": 2}, "compared with version 2, but the champion is version 3"),
        (WIN | {"comparable": False, "reason": "not comparable: columns"}, "not comparable: columns"),
    ],
)
def test_an_incomparable_candidate_is_deployed_only_on_request(comparison, words):
    kept = decided(candidate(comparison))
    assert (kept.deploy, kept.word) == (False, "keep")
    assert words in kept.reason
    requested = decided(candidate(comparison, requested=True))
    assert (requested.deploy, requested.by) == (True, "request")


def test_the_champion_itself_is_not_deployed_again():
    kept = decided(Candidate(CHAMPION.run_key, True, WIN))
    assert (kept.deploy, kept.reason) == (False, "it is the champion already")


def test_mode_never_and_a_poor_score_are_final_even_on_request():
    assert "never" in decided(candidate(WIN, requested=True), mode="never").reason
    assert "min_metric" in decided(candidate(WIN, good=False, requested=True)).reason


def test_a_person_decides_in_manual_mode_but_not_on_a_poor_score():
    assert decide(Deploy(mode="manual"), candidate(WIN), CHAMPION) is None
    assert decide(Deploy(mode="manual"), candidate(WIN, requested=True), CHAMPION) is None
    assert not decided(candidate(WIN, good=False), mode="manual").deploy


def test_a_backfill_and_an_earlier_interval_are_deployed_only_on_request():
    assert "backfill" in decided(candidate(WIN, until=LATER, backfill=True)).reason
    assert decided(candidate(WIN, until=LATER, backfill=True, requested=True)).deploy
    assert "later data" in decided(candidate(WIN, until=EARLIER)).reason
    assert decided(candidate(WIN, until=LATER)).deploy


def test_a_decision_is_written_with_the_model_version_and_the_time():
    written = decided(candidate(WIN)).as_json(5)
    assert written["at"].endswith("+00:00")
    assert written | {"at": ""} == {
        "schema": 1,
        "decision": "deploy",
        "deploy": True,
        "by": "rule",
        "reason": WIN["reason"],
        "champion_version": 3,
        "model_version": 5,
        "at": "",
    }
