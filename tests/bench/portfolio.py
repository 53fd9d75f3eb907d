"""Portfolios of boosted trees: which configurations ``strategy = "auto"`` tries first.

Run ``python tests/bench/portfolio.py``. Each of ``--configurations`` random points of a family's default
space is scored by cross-validation on each development set of ``scoreboard.py``. The first configuration
stays if it is among the points: it is the model of a search of one trial. Greedy selection then adds the
one that lowers the mean regret most: the error above the best one known for the set, as a share of the
distance from there to the median configuration. The printed configurations are ``portfolio`` of the model's
definition. ``reached``: of the sets, the share where a portfolio chosen on the other sets is at least as
good as 30 trials of TPE; ``regret``: of both. ``served`` judges the model's present portfolio on further
sets. ``--cache`` keeps the scores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.models import CATALOGUE
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search
from dmls_core.search.samplers.strategy import load_strategy
from dmls_core.search.task import SearchTask
from tests.bench import scoreboard, scoreboard_methods
from tests.bench.report import Row, run

DIGITS = 2  # of a configuration's numbers
REFERENCE = 30  # trials of TPE
LARGEST = 9.0
"""Regrets are cut there: on a set where most configurations are equally good, all others have large ones."""


def rounded(params: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with few digits."""
    return {
        name: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
        for name, value in params.items()
    }


def configurations(space: Any, count: int) -> list[dict[str, Any]]:
    """Return random points of the space of a booster's search."""
    import optuna

    from dmls_core.search.study.distributions import Distributions

    found = []
    for number in range(count):
        study = optuna.create_study(sampler=load_strategy("random").sampler(0, number))
        found.append(rounded(study.ask(Distributions(space).of).params))
    return found


def task_of(name: str, family: str, rows: int) -> SearchTask:
    """Return a development set as a search has it, with at most ``rows`` rows."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "split.npz"
        scoreboard.write_split(name, 0, file)
        split = scoreboard_methods.Split.read(file, 0.0, 0)
    kept = np.random.default_rng(0).permutation(len(split.y))[:rows]
    return scoreboard_methods.make_task(replace(split, x=split.x[kept], y=split.y[kept]), family)[0]


def measure_set(name: str, family: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the errors of all configurations on a set, and those of TPE's trials so far."""
    task = task_of(name, family, arguments.rows)
    space = scoreboard_methods.space_of(task.model)
    objective = make_candidate("tpe", task, space, REFERENCE).objective
    errors = []
    for number, params in enumerate(configurations(objective.suggested, arguments.configurations)):
        trial = objective.evaluate(number, params, should_prune=lambda *_: False, stop=lambda: False)
        errors.append(float("inf") if trial is None or trial.value is None else _error(task, trial.value))
    _, outcome = search([make_candidate("tpe", task, space, REFERENCE)], REFERENCE)
    best, reference = float("inf"), []
    for trial in outcome.trials:
        best = min(
            best, _error(task, trial.value) if trial.state == "complete" and trial.value is not None else best
        )
        reference.append(best)
    return {"errors": errors, "reference": reference}


def _error(task: SearchTask, value: float) -> float:
    return -task.sign * value


def greedy(regrets: np.ndarray, size: int, first: int | None) -> list[int]:
    """Return the positions of a portfolio; ``regrets`` has a row for each set; ``first`` is chosen."""
    chosen = [] if first is None else [first]
    best = regrets[:, chosen].min(axis=1, initial=np.inf)
    while len(chosen) < size:
        means = np.minimum(best[:, None], regrets).mean(axis=0)
        means[chosen] = np.inf
        chosen.append(int(means.argmin()))
        best = np.minimum(best, regrets[:, chosen[-1]])
    return chosen


def regrets_of(family: str, names: str, arguments: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Return the regrets on the named sets, a row for each: of the configurations, and of TPE's trials."""
    found = []
    for name in names.split(","):
        file = Path(arguments.cache or tempfile.mkdtemp()) / f"{family} {name.replace('/', ' ')}.json"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(measure_set(name, family, arguments)))
            print(family, name, file=sys.stderr, flush=True)
        found.append(json.loads(file.read_text()))
    errors = np.array([one["errors"][: arguments.configurations] for one in found])
    reference = np.array([one["reference"] for one in found])
    best = np.minimum(errors.min(axis=1), reference[:, -1])[:, None]
    scale = np.maximum(np.median(errors, axis=1)[:, None] - best, 1e-12)
    return ((errors - best) / scale).clip(max=LARGEST), ((reference - best) / scale).clip(max=LARGEST)


def _line(family: str, best: list[float], others: np.ndarray, size: int) -> Row:
    return {
        "family": family,
        "sets": len(best),
        "trials": size,
        "portfolio": f"{np.mean(best):.3f}",
        "TPE, as many": f"{others[:, size - 1].mean():.3f}",
        "TPE, 30": f"{others[:, -1].mean():.3f}",
        "reached": f"{np.mean(np.array(best) <= others[:, -1] + 1e-9):.0%}",
    }


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Choose a portfolio for each family, and judge the present one."""
    tables: dict[str, list[Row]] = {"regret": [], "served": []}
    for family in arguments.families.split(","):
        model = CATALOGUE[f"{family}-classifier"]
        points = configurations(make_candidate_space(model), arguments.configurations)
        regrets, others = regrets_of(family, arguments.sets, arguments)
        first = points.index(model.portfolio[0]) if model.portfolio[0] in points else None
        tables[family] = [points[at] for at in greedy(regrets, arguments.size, first)]
        for size in range(1, arguments.size + 1):
            left = []
            for at in range(len(regrets)):
                chosen = greedy(np.delete(regrets, at, axis=0), size, first)
                left.append(regrets[at, chosen].min())
            tables["regret"].append(_line(family, left, others, size))
        if arguments.check and all(params in points for params in model.portfolio):
            regrets, others = regrets_of(family, arguments.check, arguments)
            served = [points.index(params) for params in model.portfolio]
            tables["served"].append(_line(family, list(regrets[:, served].min(axis=1)), others, len(served)))
    return tables


def make_candidate_space(model: Any) -> Any:
    """Return the part of a booster's default space that its search suggests: all but the rounds."""
    from dmls_core.search.boosting.learning_curve import ROUNDS
    from dmls_core.search.task import Space

    space = scoreboard_methods.space_of(model)
    return Space({name: wanted for name, wanted in space.searched.items() if name != ROUNDS}, space.fixed)


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--families", "lightgbm,xgboost", "families of boosted trees"),
        ("--sets", ",".join(scoreboard.DEVELOPMENT), "data sets by commas"),
        ("--check", ",".join(scoreboard.CHECK), "further data sets, for the present portfolio"),
        ("--configurations", 72, "random configurations"),
        ("--rows", 600, "training rows of each set, at most"),
        ("--size", 8, "configurations of a portfolio"),
        ("--cache", "", "folder for the scores; a rerun continues there"),
    )
