"""Search of boosted trees: DMLS against plain Optuna (TPE, 3-fold cross-validation of the library's own
scikit-learn interface), on the default space, the same rows and the same number of trials, side by side.

Run it with ``python tests/bench/search_boosted.py``; both refit their best trial and score it on a fifth of
the rows that neither search saw. Seconds are of the search alone, and of CPU time where the head says so.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import optuna
from sklearn import datasets
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score, train_test_split

from dmls_core.evaluate import scorer
from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search
from dmls_core.search.task import SearchTask, make_folds
from tests.bench.report import Row, run
from tests.bench.scoreboard_methods import plain_space, space_of

Found = tuple[float, float, float]
"""Seconds of the search, its CPU seconds, and the score of the refitted best trial on the holdout."""


def load(name: str, rows: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Return features, target and the number of classes."""
    if name == "synthetic":
        x, y = datasets.make_classification(
            rows, 54, n_informative=20, n_classes=7, flip_y=0.05, random_state=0
        )
    elif name == "binary":
        x, y = datasets.make_classification(rows, 30, n_informative=10, flip_y=0.05, random_state=0)
    elif name == "friedman":
        x, y = datasets.make_friedman1(rows, 20, noise=1.0, random_state=0)
    else:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    classes = 0 if name in ("diabetes", "friedman") else len(np.unique(y))
    return x.astype(np.float32), y.astype(np.int32 if classes else np.float64), classes


def ours(model: Any, data: list[np.ndarray], classes: int, seed: int, trials: int, threads: int) -> Found:
    """Search as a trainer does."""
    x, rest, y, truth = data
    engine = load_engine("cpu", model.name)
    metric = model.default_metric
    task = SearchTask(
        model=model,
        engine=engine,
        features=x,
        target=y,
        truth=y,
        n_classes=classes,
        folds=make_folds(y, 3, n_classes=classes, seed=seed),
        score=scorer(metric),
        direction="maximize",
        seed=seed,
        threads=threads,
    )
    started, cpu = time.perf_counter(), time.process_time()
    _, outcome = search([make_candidate("auto", task, space_of(model), trials)], trials)
    spent = time.perf_counter() - started, time.process_time() - cpu
    options = {"n_classes": classes, "seed": seed, "threads": threads}
    fitted = engine.fit(model, outcome.params, x, y, **options)
    return *spent, scorer(metric)(truth, fitted.predict(rest))


def plain(model: Any, data: list[np.ndarray], classes: int, seed: int, trials: int, threads: int) -> Found:
    """Search as Optuna's own examples do."""
    x, rest, y, truth = data
    folds = (StratifiedKFold if classes else KFold)(3, shuffle=True, random_state=seed)
    space = plain_space(model).searched

    def estimator(params: dict[str, Any]) -> Any:
        fixed: dict[str, Any] = {"random_state": seed, "n_jobs": threads}
        if model.family == "lightgbm":
            from lightgbm import LGBMClassifier, LGBMRegressor

            kind = LGBMClassifier if classes else LGBMRegressor
            return kind(**params, **fixed, subsample_freq=1, verbosity=-1)
        from xgboost import XGBClassifier, XGBRegressor

        return (XGBClassifier if classes else XGBRegressor)(**params, **fixed, verbosity=0)

    def objective(trial: optuna.Trial) -> float:
        params = {
            name: (trial.suggest_int if wanted.integer else trial.suggest_float)(
                name, wanted.min, wanted.max, log=wanted.log
            )
            for name, wanted in space.items()
        }
        return float(cross_val_score(estimator(params), x, y, cv=folds).mean())

    started, cpu = time.perf_counter(), time.process_time()
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials)
    spent = time.perf_counter() - started, time.process_time() - cpu
    return *spent, float(estimator(study.best_params).fit(x, y).score(rest, truth))


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Search every data set with both libraries and every seed."""
    rows = []
    for name in arguments.data.split(","):
        x, y, classes = load(name, arguments.rows)
        for family in arguments.families.split(","):
            model = CATALOGUE[f"{family}-{'classifier' if classes else 'regressor'}"]
            found: dict[Callable[..., Found], list[Found]] = {ours: [], plain: []}
            for seed in range(arguments.seeds):
                split = train_test_split(
                    x, y, test_size=0.2, random_state=seed, stratify=y if classes else None
                )
                for method, results in found.items():
                    results.append(method(model, split, classes, seed, arguments.trials, arguments.threads))
                print(name, family, seed, *(results[-1] for results in found.values()), file=sys.stderr)
            rows.append(_row(name, family, len(x), found[ours], found[plain]))
    return rows


def _row(name: str, family: str, rows: int, mine: list[Found], other: list[Found]) -> Row:
    gain = [one[2] - two[2] for one, two in zip(mine, other, strict=True)]
    return {
        "data": name,
        "rows": rows,
        "family": family,
        "DMLS s": mean(one[0] for one in mine),
        "Optuna s": mean(one[0] for one in other),
        "times faster": sum(one[0] for one in other) / sum(one[0] for one in mine),
        "CPU times": sum(one[1] for one in other) / sum(one[1] for one in mine),
        "DMLS holdout": f"{mean(one[2] for one in mine):.4f}",
        "Optuna holdout": f"{mean(one[2] for one in other):.4f}",
        "difference": f"{mean(gain):+.4f} +- {stdev(gain) if gain[1:] else 0.0:.4f}",
    }


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    run(
        __doc__,
        measure,
        ("--data", "breast_cancer,diabetes,digits,synthetic", "data sets"),
        ("--families", "xgboost,lightgbm", "families of models"),
        ("--seeds", 3, "seeds, and with each another split"),
        ("--trials", 30, "trials of each search"),
        ("--rows", 20_000, "rows of generated data: synthetic (54 columns, 7 classes), binary or friedman"),
        ("--threads", 2, "CPU threads"),
    )
