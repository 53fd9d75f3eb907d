"""Searches that start with the hyperparameters of an earlier search, against those with the portfolio alone.

Run ``python tests/bench/warm_start.py`` with the packages of ``scoreboard.py``. A search of 30 trials on one
half of a data set's training rows finds hyperparameters. Searches of a few trials on the other half start
with these (``own``: as a retraining starts with its champion), or try those of the most similar data sets
after the portfolio's first configuration (``similar``). Changes are of the error on held-out rows, with
standard errors; ``cv`` counts data sets whose cross-validated score is better and worse.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import optuna

from dmls_core.models import CATALOGUE
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search
from tests.bench import scoreboard
from tests.bench.report import Row, run
from tests.bench.scoreboard_methods import Split, make_task, space_of

EARLIER = 30
"""Trials of the earlier search."""

Params = dict[str, Any]


@dataclass(frozen=True)
class Halves:
    """Two halves of the training rows of a data set, its held-out target and its metric."""

    first: Split
    second: Split
    truth: np.ndarray
    metric: str


def load(names: list[str], rows: int) -> Iterator[tuple[str, Halves]]:
    """Yield each data set whose halves, of at most ``rows``, have all classes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "split.npz"
        for name in names:
            truth, metric = scoreboard.write_split(name, 0, file)
            split = Split.read(file, 1_000.0, 0)
            order = np.random.default_rng(0).permutation(len(split.x))
            parts = [half[:rows] for half in np.array_split(order, 2)]
            first, second = (replace(split, x=split.x[part], y=split.y[part]) for part in parts)
            if all(has_all_classes(half) for half in (first, second)):
                yield name, Halves(first, second, truth, metric)


def has_all_classes(split: Split) -> bool:
    """Return whether each class has a row for each of three folds."""
    return not split.classes or np.bincount(split.y, minlength=split.classes).min() >= 3


def find(
    split: Split, halves: Halves, family: str, trials: int, portfolio: Sequence[Mapping[str, Any]]
) -> tuple[float, float, Params]:
    """Return the error on the held-out rows, the cross-validated score (higher is better), and the best."""
    task, rest = make_task(split, family)
    task = replace(task, model=replace(task.model, portfolio=tuple(portfolio)))
    winner, outcome = search([make_candidate("auto", task, space_of(task.model), trials)], trials)
    fitted = outcome.fitted or winner.task.fit(outcome.params)
    error = scoreboard.error(halves.truth, fitted.predict(rest), halves.metric)
    sign = 1 if task.direction == "maximize" else -1
    best = {name: outcome.best.params[name] for name in portfolio[0]}
    return error, sign * float(outcome.best.value or 0), best


def features(split: Split) -> list[float]:
    """Return what makes data sets similar."""
    counts = np.bincount(split.y) if split.classes else np.zeros(1)
    return [
        np.log(len(split.x)),
        np.log(split.x.shape[1]),
        np.log1p(split.classes),
        len(split.categories) / split.x.shape[1],
        float(np.isnan(split.x).mean()),
        counts.max() / len(split.y),
    ]


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Search every data set each way."""
    warnings.simplefilter("ignore")
    family = arguments.family
    names = arguments.sets.split(",") if arguments.sets else [*scoreboard.DEVELOPMENT, *scoreboard.CHECK]
    data = dict(load(names, arguments.rows))
    own: dict[str, Params] = {}
    portfolios = {
        name: list(CATALOGUE[f"{family}-{'classifier' if one.first.classes else 'regressor'}"].portfolio)
        for name, one in data.items()
    }
    for name, halves in data.items():
        own[name] = find(halves.first, halves, family, EARLIER, portfolios[name])[2]
        print(name, own[name], file=sys.stderr)
    known = np.array([features(halves.second) for halves in data.values()])
    known = (known - known.mean(0)) / (known.std(0) + 1e-9)
    changes: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for at, (name, halves) in enumerate(data.items()):
        distance = ((known - known[at]) ** 2).sum(1)
        distance[at] = np.inf
        portfolio, near = portfolios[name], [list(own.values())[one] for one in np.argsort(distance)]
        for trials in (1, 3, 8):
            started = {"own": [own[name], *portfolio]}
            if trials > 1:
                started["similar"] = [portfolio[0], *near[: (trials + 1) // 3], *portfolio[1:]]
            base = find(halves.second, halves, family, trials, portfolio)
            for kind, points in started.items():
                found = find(halves.second, halves, family, trials, points)
                change = found[0] / base[0] - 1 if base[0] else 0.0
                changes.setdefault((kind, trials), []).append((change, found[1] - base[1]))
    return [_row(kind, trials, found) for (kind, trials), found in sorted(changes.items())]


def _row(kind: str, trials: int, found: list[tuple[float, float]]) -> Row:
    change, gain = np.array(found).T
    error = change.std(ddof=1) / len(change) ** 0.5 if len(change) > 1 else float("nan")
    return {
        "first": kind,
        "trials": trials,
        "data sets": len(found),
        "error": f"{100 * change.mean():+.1f} % ({100 * error:.1f} %)",
        "better, worse": f"{(change < -1e-9).sum()}, {(change > 1e-9).sum()}",
        "cv better, worse": f"{(gain > 1e-12).sum()}, {(gain < -1e-12).sum()}",
    }


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run(
        __doc__,
        measure,
        ("--family", "lightgbm", "lightgbm or xgboost"),
        ("--sets", "", "data sets by commas; by default those of the scoreboard that do not report"),
        ("--rows", 1_000, "most rows of each half"),
    )
