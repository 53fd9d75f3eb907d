"""A search of a job that has a champion: its first trial has the champion's hyperparameters."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dmls_core.models import CATALOGUE
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search
from dmls_core.search.task import Space
from dmls_core.spec import Range
from dmls_core.training import TrainRequest, train
from dmls_core.training.champion import champion_params
from tests.unit.search.boosting.test_objective import make_task

SPEC = """model = ["lightgbm-classifier", "xgboost-classifier"]
n_trials = 2
[columns]
target = "y"
"""
SPACE = Space({"num_leaves": Range(min=2, max=9), "reg_lambda": Range(min=0.0, max=9.0)}, {"n_estimators": 5})
PORTFOLIO = ({"num_leaves": 3, "reg_lambda": 1.0}, {"num_leaves": 5, "reg_lambda": 2.0})
CHAMPION = {"num_leaves": 8, "reg_lambda": 0.5}


def first_trials(earlier, strategy="auto"):
    task = make_task("lightgbm")
    task = replace(task, model=replace(task.model, portfolio=PORTFOLIO))
    candidate = make_candidate(strategy, task, SPACE, 3, earlier=earlier)
    return [trial.params for trial in search([candidate], 3)[1].trials]


def test_the_portfolio_follows_the_champion_which_is_not_tried_twice():
    assert first_trials({**CHAMPION, "subsample": 0.5}) == [CHAMPION, *PORTFOLIO]
    assert first_trials(PORTFOLIO[1])[:2] == [PORTFOLIO[1], PORTFOLIO[0]]


@pytest.mark.parametrize(
    "earlier", [None, {}, {"num_leaves": 8}, {"num_leaves": 10, "reg_lambda": 0.5}], ids=str
)
def test_without_a_champion_in_its_space_a_search_starts_with_the_portfolio(earlier):
    assert first_trials(earlier)[:2] == list(PORTFOLIO)


def test_a_strategy_without_a_portfolio_has_no_champion_either():
    assert first_trials(CHAMPION, "random") == first_trials(None, "random")


def test_a_run_starts_with_its_champion_and_says_so(tmp_path):
    rows = np.random.default_rng(0).normal(size=(120, 3)).round(3)
    lines = [",".join(map(str, [*row, "up" if row.sum() > 0 else "down"])) for row in rows]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,c,y", *lines]))
    (tmp_path / "spec.toml").write_text(SPEC)
    portfolio = CATALOGUE["xgboost-classifier"].portfolio
    best = {**portfolio[0], "subsample": 0.75, "max_depth": 4}
    (tmp_path / "champion").mkdir()
    (tmp_path / "champion" / "result.json").write_text(
        json.dumps({"model": "xgboost-classifier", "best_params": {**best, "n_estimators": 80}})
    )
    said: list[str] = []
    request = TrainRequest(
        f"{tmp_path}/spec.toml",
        (f"{tmp_path}/data.csv",),
        f"{tmp_path}/out",
        champion=f"{tmp_path}/champion",
        champion_version=4,
    )
    result = train(request, progress=lambda line: said.append(str(line)))

    trials = [json.loads(file.read_bytes()) for file in sorted((tmp_path / "out/trials").glob("*.json"))]
    found = {trial["model"]: {k: v for k, v in trial["params"].items() if k in best} for trial in trials}
    lightgbm = CATALOGUE["lightgbm-classifier"].portfolio[0]
    assert found["xgboost-classifier"] == best
    assert trials[0]["params"].items() >= lightgbm.items()
    assert result["model"] == "xgboost-classifier"
    assert result["warm_start"] == {"champion_version": 4, "params": best}
    assert any("of xgboost-classifier, the champion's values first" in line for line in said)


def test_helpers_read_the_same_hyperparameters(tmp_path):
    best = {"max_depth": None, "subsample": 0.5}
    (tmp_path / "result.json").write_text(json.dumps({"model": "a-model", "best_params": best}))
    job = SimpleNamespace(request=SimpleNamespace(champion=str(tmp_path)))
    assert champion_params(job, None) == ("a-model", {"max_depth": "none", "subsample": 0.5})
    job.request.champion = str(tmp_path / "gone")
    assert champion_params(job, None) == ("", {})
