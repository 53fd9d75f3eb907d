"""Which of several runs is better, beyond chance."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dmls_core.web.services.run_comparison import describe_comparison, paired_p_value
from dmls_core.web.services.runs import Run, RunFiles, run_name

ROWS = 200


def run(version: int) -> Run:
    return Run(
        f"manual__{version}",
        "success",
        "manual",
        None,
        None,
        None,
        {},
        version,
        "k",
        name=f"version {version}",
    )


def files(score: float, losses: list[float] | None = None, **changes: Any) -> RunFiles:
    result = {
        "metric": "accuracy",
        "direction": "maximize",
        "score": score,
        "tuned": ["max_depth"],
        "best_params": {"max_depth": 3, "verbose": 0},
        "data": {"hash": "h", "split": {"seed": 1}, "holdout_rows": ROWS, "rows": 5 * ROWS},
        "holdout": {"metrics": {"accuracy": score}, "interval": [score - 0.05, score + 0.05]},
    } | changes
    insight = {"losses": losses, "loss": "share of wrong predictions"} if losses else None
    return RunFiles(result=result, insight=insight)


def wrong(count: int) -> list[float]:
    return [1.0] * count + [0.0] * (ROWS - count)


def compare(*found: RunFiles) -> Any:
    return describe_comparison([run(number) for number in range(1, len(found) + 1)], found)


def test_a_run_that_is_right_on_many_more_of_the_same_rows_wins():
    found = compare(files(0.7, wrong(60)), files(0.9, wrong(20)))
    assert (found.best, found.winner) == (1, 1)
    (contrast,) = found.contrasts
    assert (contrast.run_id, contrast.rows, contrast.significant) == ("manual__1", ROWS, True)
    assert found.message == "The winner is version 2: its accuracy is better beyond chance."


def test_two_rows_more_may_be_chance():
    found = compare(files(0.91, wrong(18)), files(0.9, wrong(20)))
    assert (found.best, found.winner) == (0, None)
    assert "No clear winner: version 1 has the best accuracy" in found.message
    assert found.contrasts[0].p_value > 0.05


def test_equal_scores_have_no_best():
    found = compare(files(0.9, wrong(20)), files(0.9, wrong(20)))
    assert found.message == "No winner: version 1 and version 2 have the same accuracy."
    assert found.contrasts[0].message == "accuracy is the same, on the same held-out rows"
    assert (found.best, found.winner, found.scores[0].best) == (None, None, [])


def test_other_rows_are_compared_by_intervals():
    other = {"data": {"hash": "other", "split": {"seed": 1}, "holdout_rows": ROWS}}
    far = compare(files(0.6, wrong(80), **other), files(0.9, wrong(20)))
    assert (far.winner, far.contrasts[0].rows) == (1, None)
    near = compare(files(0.88, wrong(24), **other), files(0.9, wrong(20)))
    assert near.winner is None
    assert "on different held-out rows" in near.contrasts[0].message


def champion_comparison(low: float, high: float, *, conclusive: bool = True) -> dict[str, Any]:
    return {
        "metric": "accuracy",
        "champion_run_key": "first",
        "conclusive": conclusive,
        "interval": [low, high],
        "rows": 150,
        "reason": "on 150 held-out rows, the challenger is what it is",
    }


@pytest.mark.parametrize(
    ("scores", "interval", "winner"),
    [((0.6, 0.9), (-0.01, 0.02), None), ((0.89, 0.9), (0.01, 0.02), 1), ((0.9, 0.89), (-0.02, -0.01), 0)],
)
def test_runs_have_the_verdict_of_their_champion_and_challenger(scores, interval, winner):
    first = files(scores[0], run_key="first")
    found = compare(first, files(scores[1], run_key="second", comparison=champion_comparison(*interval)))
    assert found.winner == winner
    assert (found.contrasts[0].message, found.contrasts[0].rows) == (
        "on 150 held-out rows, the challenger is what it is",
        150,
    )


def test_a_comparison_without_a_verdict_decides_nothing():
    unclear = champion_comparison(-0.09, -0.06, conclusive=False)
    second = files(0.86, run_key="second", comparison=unclear)
    found = compare(files(0.9, run_key="first"), second)
    assert found.winner is None
    assert "judged by both intervals" in found.contrasts[0].message


def test_a_metric_of_probabilities_is_not_judged_by_wrong_classes():
    ranking = {"metric": "roc_auc"}
    found = compare(files(0.52, wrong(40), **ranking), files(0.75, wrong(38), **ranking))
    assert (found.winner, found.contrasts[0].rows) == (1, None)


def test_smaller_is_better_for_a_loss():
    assert compare(files(0.7, direction="minimize"), files(0.2, direction="minimize")).winner == 1


def test_the_best_value_of_each_metric_is_marked_and_the_searched_one_comes_first():
    lower = {"accuracy": 0.7, "log_loss": 0.2, "f1_macro": 0.8, "custom": 1.0}
    higher = {"accuracy": 0.9, "log_loss": 0.3, "f1_macro": 0.8, "custom": 2.0}
    found = compare(*(files(each["accuracy"], holdout={"metrics": each}) for each in (lower, higher)))
    assert [(row.key, row.direction, row.best) for row in found.scores] == [
        ("accuracy", "maximize", [1]),
        ("custom", "", []),
        ("f1_macro", "maximize", []),
        ("log_loss", "minimize", [0]),
    ]


def test_different_metrics_and_missing_results_have_no_winner():
    assert "different metrics" in compare(files(0.7), files(0.9, metric="f1")).message
    assert compare(files(0.7), RunFiles()).best is None


def test_tuned_parameters_are_apart_from_library_internals():
    found = compare(files(0.7), files(0.7, best_params={"max_depth": 4, "verbose": 1}))
    assert [(row.key, row.values) for row in found.differences] == [
        ("parameters.max_depth", [3, 4]),
        ("version", [1, 2]),
    ]
    assert [row.key for row in found.other_differences] == ["parameters.verbose"]


def test_the_paired_test_agrees_with_a_known_value():
    # 15 rows better, 5 worse: McNemar's z is (15 - 5) / sqrt(20) = 2.24.
    losses = [1.0] * 15 + [0.0] * 5 + [0.0] * 980
    others = [0.0] * 15 + [1.0] * 5 + [0.0] * 980
    assert paired_p_value(losses, others) == pytest.approx(0.0253, abs=0.001)
    assert paired_p_value([1.0, 0.0], [1.0, 0.0]) == 1.0


def test_names_of_runs_say_what_is_special():
    started = datetime(2026, 11, 22, 10, 10, 8, tzinfo=UTC)
    assert run_name(2, started, None, {"seed": 11}) == "job version 2, 22 Nov 2026 10:10:08 UTC (seed 11)"
    ranges = {"xgboost-classifier": {"max_depth": {"min": 2, "max": 5}, "eta": {"value": 0.1}}}
    assert run_name(2, started, None, {"hyperparameters": ranges}).endswith("(other eta, max_depth)")
    assert run_name(None, None, ("2026-01-01T00", "2026-01-08T00"), {}) == (
        "not started, data of 2026-01-01 to 2026-01-08"
    )
