"""How well the scores of a search choose among families, whose scores have different errors.

Run ``python tests/bench/family_choice.py`` with the packages of ``scoreboard.py``. Each family of ``auto``
has a search of eight trials on every data set. ``held out / score`` is the error on held-out rows as a share
of the error that the search has seen: below 1, the search thinks too little of its models. With a
``handicap``, the errors of forests count that many times; ``saved`` is the change of the chosen model's error
on held-out rows, as a share of the random forest's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import optuna

from dmls_core.search.optimize import search
from dmls_core.search.strategies import make_candidate
from tests.bench import scoreboard
from tests.bench.report import Row, run
from tests.bench.scoreboard_methods import FAMILIES, Split, make_task, space_of
from tests.bench.warm_start import has_all_classes

TRIALS = 8
FORESTS = ("extra-trees", "random-forest")
HANDICAPS = (1.0, 1.02, 1.05, 1.08, 1.15, 2.0)

Errors = dict[str, tuple[float, float]]
"""Family -> error by the search's score, and on held-out rows."""


def errors_of(split: Split, truth: np.ndarray, metric: str) -> Errors:
    """Search with each family."""
    found: Errors = {}
    for family in FAMILIES:
        task, rest = make_task(split, family)
        space = space_of(task.model)
        winner, outcome = search([make_candidate("auto", task, space, TRIALS)], TRIALS)
        fitted = outcome.fitted or winner.task.fit(outcome.params)
        score = float(outcome.best.value or 0)
        seen = 1 - score if metric == "roc_auc" else score
        found[family] = seen, scoreboard.error(truth, fitted.predict(rest), metric)
    return found


def chosen(errors: Errors, handicap: float) -> str:
    """Return the family with the lowest error by the scores, with a handicap for forests."""
    return min(errors, key=lambda one: errors[one][0] * (handicap if one in FORESTS else 1))


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
            errors = errors_of(split, truth, metric)
            print(name, errors, file=sys.stderr)
            if min(min(pair) for pair in errors.values()) > 0:
                found.append(errors)
    return {
        "families": [_family(family, found) for family in FAMILIES],
        "choices": [_choice(handicap, found) for handicap in HANDICAPS],
    }


def _family(family: str, found: list[Errors]) -> Row:
    ratios = [one[family][1] / one[family][0] for one in found]
    return {
        "family": family,
        "held out / score, median": f"{np.median(ratios):.3f}",
        "chosen": sum(chosen(one, 1.0) == family for one in found),
        "best on held-out rows": sum(
            one[family][1] == min(pair[1] for pair in one.values()) for one in found
        ),
    }


def _choice(handicap: float, found: list[Errors]) -> Row:
    def held_out(one: Errors, by: float) -> float:
        return one[chosen(one, by)][1] / one["random-forest"][1]

    saved = np.array([held_out(one, 1.0) - held_out(one, handicap) for one in found])
    return {
        "handicap": handicap,
        "forests chosen": sum(chosen(one, handicap) in FORESTS for one in found),
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
    )
