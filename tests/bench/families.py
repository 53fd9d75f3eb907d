"""What to serve after a search of several families: the best trial, or the mean of the best boosters.

Run ``python tests/bench/families.py`` with the packages of ``scoreboard.py``. Each family has a search of its
own on every data set. ``held out / score`` is the error on held-out rows as a share of the error that the
search has seen. A rule chooses by the latter: the best trial, with the errors of forests counted several
times, or the mean of boosters as ``pick_winners`` does. ``saved`` is the change of the error on held-out rows
against the best trial without CatBoost, as a share of the random forest's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import cast

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import optuna

from dmls_core.models.engines import FittedEnsemble, FittedTrees
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search
from dmls_core.search.winners import GAIN, SIMILAR, expected_gain
from tests.bench import scoreboard
from tests.bench.report import Row, run
from tests.bench.scoreboard_methods import FAMILIES, Split, make_task, space_of
from tests.bench.warm_start import has_all_classes

FORESTS = ("extra-trees", "random-forest")
BOOSTERS = ("lightgbm", "xgboost", "catboost")


@dataclass
class Errors:
    """The errors of one data set's models.

    Attributes:
        seen: family -> error by the search's score.
        held_out: family -> error on held-out rows.
        means: boosters -> error of their mean on held-out rows.
        in_log_loss: whether these are log losses of more than two classes.
    """

    seen: dict[str, float]
    held_out: dict[str, float]
    means: dict[tuple[str, ...], float]
    in_log_loss: bool


def errors_of(split: Split, truth: np.ndarray, metric: str, trials: int) -> Errors:
    """Search with each family."""
    found, models = Errors({}, {}, {}, metric == "log_loss"), dict[str, FittedTrees]()
    for family in FAMILIES:
        task, rest = make_task(split, family)
        winner, outcome = search([make_candidate("auto", task, space_of(task.model), trials)], trials)
        fitted = outcome.fitted or winner.task.fit(outcome.params)
        found.seen[family] = task.error(float(outcome.best.value or 0))
        found.held_out[family] = scoreboard.error(truth, fitted.predict(rest), metric)
        models[family] = cast("FittedTrees", fitted)
    for size in range(2, len(BOOSTERS) + 1):
        for some in combinations(BOOSTERS, size):
            mean = FittedEnsemble([models[one] for one in some], [1 / size] * size)
            found.means[some] = scoreboard.error(truth, mean.predict(split.plain[1]), metric)
    return found


def best_trial(errors: Errors, handicap: float = 1.0, families: tuple[str, ...] = FAMILIES[:4]) -> str:
    """Return the family with the lowest error by the scores, with a handicap for forests."""
    return min(families, key=lambda one: errors.seen[one] * (handicap if one in FORESTS else 1))


def mean_of(errors: Errors, boosters: tuple[str, ...], gain: float | None = None) -> str | tuple[str, ...]:
    """Return the boosters whose mean is served, or the best family; ``gain`` replaces that of the search."""
    best = min(errors.seen[one] for one in boosters)
    similar = tuple(one for one in boosters if errors.seen[one] <= SIMILAR * best)
    forest = min(FORESTS, key=errors.seen.__getitem__)
    own = expected_gain(len(similar), in_log_loss=errors.in_log_loss)
    if errors.seen[forest] < (own if gain is None else gain) * best:
        return forest
    return similar if len(similar) > 1 else similar[0]


RULES: dict[str, Callable[[Errors], str | tuple[str, ...]]] = {
    "best trial": best_trial,
    "best trial, CatBoost too": lambda one: best_trial(one, families=FAMILIES),
    "best trial, forests x 1.05": lambda one: best_trial(one, 1.05),
    "best trial, forests x 1.15": lambda one: best_trial(one, 1.15),
    "mean of LightGBM and XGBoost": lambda one: mean_of(one, BOOSTERS[:2]),
    "the same, forests at 0.97 by every metric": lambda one: mean_of(one, BOOSTERS[:2], gain=GAIN),
    "the same, forests by their scores": lambda one: mean_of(one, BOOSTERS[:2], gain=1.0),
    "mean of LightGBM and CatBoost": lambda one: mean_of(one, ("lightgbm", "catboost")),
    "mean of all three": lambda one: mean_of(one, BOOSTERS),
}


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Search every data set with every family."""
    warnings.simplefilter("ignore")
    names = arguments.sets.split(",") if arguments.sets else [*scoreboard.DEVELOPMENT, *scoreboard.CHECK]
    found: list[Errors] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "split.npz"
        for name in names:
            truth, metric = scoreboard.write_split(name, 0, file)
            split = Split.read(file, 1_000.0, 0)
            kept = np.random.default_rng(0).permutation(len(split.x))[: arguments.rows]
            split = replace(split, x=split.x[kept], y=split.y[kept])
            if not has_all_classes(split):
                continue
            errors = errors_of(split, truth, metric, arguments.trials)
            print(name, errors, file=sys.stderr)
            if min(*errors.seen.values(), *errors.held_out.values()) > 0:
                found.append(errors)
    return {
        "families": [_family(family, found) for family in FAMILIES],
        "rules": [_rule(name, found) for name in RULES],
    }


def _family(family: str, found: list[Errors]) -> Row:
    ratios = [one.held_out[family] / one.seen[family] for one in found]
    return {
        "family": family,
        "held out / score, median": f"{np.median(ratios):.3f}",
        "chosen": sum(best_trial(one) == family for one in found),
        "best on held-out rows": sum(
            one.held_out[family] == min(one.held_out[name] for name in FAMILIES) for one in found
        ),
    }


def _rule(name: str, found: list[Errors]) -> Row:
    def held_out(one: Errors, rule: str) -> float:
        chosen = RULES[rule](one)
        error = one.held_out[chosen] if isinstance(chosen, str) else one.means[chosen]
        return error / one.held_out["random-forest"]

    errors = np.array([held_out(one, name) for one in found])
    saved = np.array([held_out(one, "best trial") for one in found]) - errors
    return {
        "rule": name,
        "forests chosen": sum(RULES[name](one) in FORESTS for one in found),
        "below the forest, median": f"{100 * np.median(1 - errors):.1f} %",
        "saved": f"{100 * saved.mean():+.1f} % ({100 * saved.std(ddof=1) / len(saved) ** 0.5:.1f} %)",
        "better, worse": f"{(saved > 1e-9).sum()}, {(saved < -1e-9).sum()}",
    }


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run(
        __doc__,
        measure,
        ("--sets", "", "data sets by commas; by default those of the scoreboard that do not report"),
        ("--rows", 2_000, "most training rows"),
        ("--trials", 20, "trials of each family"),
    )
