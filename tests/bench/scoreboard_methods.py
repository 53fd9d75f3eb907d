"""The methods of ``scoreboard.py``: each runs in a process of its own, on one split of one data set.

``python scoreboard_methods.py METHOD SPLIT.npz ANSWER.npz SECONDS SEED`` needs NumPy, pandas and the method's
packages only. The clock of every library is the CPU time of the process, whatever else the machine does.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

SEARCHED = 0.9
"""Share of the seconds in which DMLS and plain Optuna start trials; the rest is for the refit."""

TRIALS = 200
"""Trials of a search by DMLS or plain Optuna, if its seconds last."""

MOST, GRACE = 2, 20
"""A method is ended after ``MOST`` times its CPU seconds and ``GRACE`` more."""

ROWS_TIMED = 50
"""Rows that are predicted one by one, to measure the latency."""

WALL_CLOCK = time.perf_counter
"""The clock that ``use_cpu_clock`` does not replace. Under a limit of CPU time, that one ticks too slowly."""


@dataclass(frozen=True)
class Split:
    """Rows to fit on and rows to predict: numbers, and codes from 0 in the columns ``categories``.

    A category that the training rows lack has the next free code; ``classes`` is 0 for a regression.
    """

    x: np.ndarray
    y: np.ndarray
    rest: np.ndarray
    categories: list[int]
    classes: int
    metric: str
    seconds: float
    seed: int

    @classmethod
    def read(cls, file: Path, seconds: float, seed: int) -> Split:
        found = np.load(file)
        target = found["y"].astype(np.int32 if int(found["classes"]) else np.float64)
        categories, classes = found["categories"].tolist(), int(found["classes"])
        return cls(
            found["x"], target, found["rest"], categories, classes, str(found["metric"]), seconds, seed
        )

    def frames(self) -> tuple[Any, Any]:
        """Return both matrices as data frames whose categorical columns are of that type."""
        import pandas as pd

        frames = [
            pd.DataFrame(rows, columns=[f"c{i}" for i in range(rows.shape[1])])
            for rows in (self.x, self.rest)
        ]
        for at in self.categories:
            levels = range(int(max(self.x[:, at].max(), self.rest[:, at].max())) + 1)
            for frame in frames:
                frame[f"c{at}"] = pd.Categorical(frame[f"c{at}"].astype(int), categories=levels)
        return frames[0], frames[1]

    @cached_property
    def plain(self) -> tuple[np.ndarray, np.ndarray]:
        """Both matrices in float32: all models that can take them share them."""
        return np.ascontiguousarray(self.x, np.float32), self.rest.astype(np.float32)

    def filled(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both matrices in float32, without missing values."""
        medians = np.nan_to_num(np.nanmedian(self.x, axis=0))
        x, rest = (np.where(np.isnan(rows), medians, rows).astype(np.float32) for rows in (self.x, self.rest))
        return x, rest


@dataclass
class Answer:
    """Predictions of the rest (of classes: probabilities); bytes, and seconds for one row."""

    prediction: np.ndarray
    size: int
    latency: float
    trials: int = 1


def dmls(split: Split, families: tuple[str, ...], trials: int = TRIALS, *, mean: bool = False) -> Answer:
    """Search as a spec with these models and spaces does (``mean``: ``ensemble = "auto"``), and serve."""
    from dmls_core.search.candidate import make_candidate
    from dmls_core.search.optimize import search
    from dmls_core.search.winners import pick_winners
    from dmls_core.serving.formats.treelite import checkpoint
    from dmls_core.serving.formats.treelite.gtil import predict_float32
    from dmls_core.training.ensemble import average_boosters

    candidates, rests = [], {}
    for family in families:
        task, rest = make_task(split, family)
        rests[task.model.name] = rest
        candidates.append(make_candidate("auto", task, space_of(task.model), trials))
    winner, outcome = search(candidates, trials, timeout=split.seconds * SEARCHED)
    winners = pick_winners(candidates, outcome.trials) if mean else [(winner, outcome)]
    (winner, outcome), *others = winners
    fitted = outcome.fitted or winner.task.fit(outcome.params)
    if others and (found := average_boosters(fitted, [(one.task, of) for one, of in winners])):
        fitted = found.fitted
    served, rest = checkpoint.snap_thresholds(fitted.to_treelite()), rests[winner.model]
    return Answer(
        fitted.predict(rest),
        len(served.serialize_bytes()),
        _latency(lambda row: predict_float32(served, rest[row : row + 1], threads=1), len(rest)),
        outcome.scored,
    )


def automatic(split: Split) -> tuple[str, ...]:
    """Return the families of ``auto``."""
    from dmls_core.models import CATALOGUE
    from dmls_core.spec.definitions import AUTO, worth_trying

    names = AUTO["auto-classifier" if split.classes else "auto-regressor"]
    tried = worth_trying(names, split.classes, split.x.shape[1])
    return tuple(CATALOGUE[name].family for name in tried)


def make_task(split: Split, family: str) -> tuple[Any, np.ndarray]:
    """Return the task of DMLS's search, with one thread, and the rows to predict in its matrix's form."""
    from dmls_core.models import CATALOGUE, METRICS
    from dmls_core.models.catalogue import load_engine
    from dmls_core.models.metrics import scorer
    from dmls_core.search.task import SearchTask, make_folds

    model = CATALOGUE[f"{family}-{'classifier' if split.classes else 'regressor'}"]
    engine = load_engine("cpu", model.name)
    x, rest = split.plain if model.missing_values else split.filled()
    engine.categories = tuple(split.categories) if engine.native_categories else ()
    task = SearchTask(
        model=model,
        engine=engine,
        features=np.ascontiguousarray(x),
        target=split.y,
        truth=split.y,
        n_classes=split.classes,
        folds=make_folds(split.y, 3, n_classes=split.classes, seed=split.seed),
        score=scorer(split.metric),
        direction=METRICS[split.metric].direction,
        seed=split.seed,
        threads=1,
    )
    return task, rest


def space_of(model: Any) -> Any:
    """Return the default space of a model."""
    from dmls_core.models import load_spec
    from dmls_core.search.task import Space

    spaces = load_spec(f'model = "{model.name}"\n[columns]\ntarget = "y"'.encode()).models[0].hyperparameters
    return Space.of({name: spaces[name] for name in model.search})


def plain_space(model: Any) -> Any:
    """Return the default space of a model for Optuna, which searches the learning rate."""
    from dmls_core.models.catalogue import suggest
    from dmls_core.spec.definitions import Range

    ranges = {name: suggest(model, name) for name in model.search}
    space = space_of(model)
    space.searched.update({name: Range(**table) for name, table in ranges.items() if "min" in table})
    return replace(space, fixed={k: v for k, v in space.fixed.items() if k not in space.searched})


def _estimator(split: Split, family: str, params: dict[str, Any]) -> Any:
    """Return a library's own estimator."""
    kind = "Classifier" if split.classes else "Regressor"
    fixed: dict[str, Any] = {"random_state": split.seed, "n_jobs": 1}
    if family == "lightgbm":
        import lightgbm

        return getattr(lightgbm, f"LGBM{kind}")(**({"subsample_freq": 1} | params), **fixed, verbosity=-1)
    if family == "xgboost":
        import xgboost

        return getattr(xgboost, f"XGB{kind}")(**params, **fixed, enable_categorical=True, verbosity=0)
    if family == "catboost":
        import catboost

        options = {
            "random_seed": split.seed,
            "thread_count": 1,
            "verbose": False,
            "allow_writing_files": False,
        }
        return getattr(catboost, f"CatBoost{kind}")(
            cat_features=[f"c{i}" for i in split.categories], **options
        )
    from sklearn import ensemble

    return getattr(ensemble, f"{'RandomForest' if family == 'random-forest' else 'ExtraTrees'}{kind}")(
        **params, **fixed
    )


def _rows(split: Split, family: str) -> tuple[Any, Any]:
    """Return the rows as the library takes them: data frames, or matrices without missing values."""
    return split.frames() if family in ("lightgbm", "xgboost", "catboost") else split.filled()


def default(split: Split, family: str) -> Answer:
    """Fit a library's defaults."""
    x, rest = _rows(split, family)
    return _answer(split, _estimator(split, family, {}).fit(x, split.y), rest)


def plain(split: Split, family: str) -> Answer:
    """Search DMLS's default space as Optuna's examples do: TPE, three folds, one fit each, and a refit."""
    import optuna
    from sklearn.model_selection import KFold, StratifiedKFold

    from dmls_core.models import CATALOGUE
    from dmls_core.models.metrics import METRICS, scorer
    from dmls_core.spec import Choice

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    x, rest = _rows(split, family)
    frame = hasattr(x, "iloc")
    space = plain_space(CATALOGUE[f"{family}-{'classifier' if split.classes else 'regressor'}"])
    folds = list(
        (StratifiedKFold if split.classes else KFold)(3, shuffle=True, random_state=split.seed).split(
            x, split.y
        )
    )

    def objective(trial: optuna.Trial) -> float:
        params = dict(space.fixed)
        for name, wanted in space.searched.items():
            if isinstance(wanted, Choice):
                params[name] = trial.suggest_categorical(name, wanted.values)
            else:
                suggest = trial.suggest_int if wanted.integer else trial.suggest_float
                params[name] = suggest(name, wanted.min, wanted.max, log=wanted.log)
        scores = []
        for train, test in folds:
            model = _estimator(split, family, params)
            model.fit(x.iloc[train] if frame else x[train], split.y[train])
            found = _predict(split, model, x.iloc[test] if frame else x[test])
            scores.append(scorer(split.metric)(split.y[test], found))
        return float(np.mean(scores))

    study = optuna.create_study(
        direction=METRICS[split.metric].direction, sampler=optuna.samplers.TPESampler(seed=split.seed)
    )
    started = time.process_time()  # Optuna's own timeout is of real time
    while len(study.trials) < TRIALS and time.process_time() - started < split.seconds * SEARCHED:
        study.optimize(objective, n_trials=1)
    model = _estimator(split, family, space.fixed | study.best_params).fit(x, split.y)
    answer = _answer(split, model, rest)
    answer.trials = len(study.trials)
    return answer


def flaml(split: Split) -> Answer:
    """Run FLAML, free to choose."""
    from flaml import AutoML

    x, rest = split.frames()
    automl = AutoML()
    automl.fit(
        x,
        split.y,
        task="classification" if split.classes else "regression",
        metric=split.metric,
        time_budget=split.seconds,
        n_jobs=1,
        seed=split.seed,
        verbose=0,
    )
    return _answer(split, automl, rest)


def autogluon(split: Split, preset: str) -> Answer:
    """Run AutoGluon on a CPU, with the models whose packages are installed."""
    import tempfile

    from autogluon.tabular import TabularPredictor

    x, rest = split.frames()
    metric = {"rmse": "root_mean_squared_error"}.get(split.metric, split.metric)
    kind = "regression" if not split.classes else "binary" if split.classes == 2 else "multiclass"
    with tempfile.TemporaryDirectory() as folder:
        predictor = TabularPredictor("y", problem_type=kind, eval_metric=metric, path=folder, verbosity=0)
        predictor.fit(x.assign(y=split.y), presets=preset, time_limit=split.seconds, num_cpus=1, num_gpus=0)
        predictor.persist()
        kept = predictor.clone_for_deployment(f"{folder}/deployed", return_clone=True)
        size = sum(file.stat().st_size for file in Path(kept.path).rglob("*") if file.is_file())
        kept.persist()

        def predict(rows: Any) -> np.ndarray:
            return (kept.predict_proba(rows) if split.classes else kept.predict(rows)).to_numpy()

        return Answer(predict(rest), size, _latency(lambda row: predict(rest.iloc[row : row + 1]), len(rest)))


def _predict(split: Split, model: Any, rows: Any) -> np.ndarray:
    return model.predict_proba(rows) if split.classes else model.predict(rows)


def _answer(split: Split, model: Any, rest: Any) -> Answer:
    def one_row(row: int) -> object:
        return _predict(
            split, model, rest.iloc[row : row + 1] if hasattr(rest, "iloc") else rest[row : row + 1]
        )

    size = len(pickle.dumps(getattr(model, "model", model)))
    return Answer(_predict(split, model, rest), size, _latency(one_row, len(rest)))


def _latency(one_row: Callable[[int], object], rows: int) -> float:
    """Return the median time of a prediction of one row."""
    seconds = []
    for row in range(min(ROWS_TIMED, rows)):
        started = WALL_CLOCK()
        one_row(row)
        seconds.append(WALL_CLOCK() - started)
    return float(np.median(seconds))


FAMILIES = ("lightgbm", "xgboost", "extra-trees", "random-forest", "catboost")

METHODS: dict[str, Callable[[Split], Answer]] = {
    "DMLS auto": lambda split: dmls(split, automatic(split), mean=True),
    "DMLS auto (1 trial)": lambda split: dmls(split, FAMILIES[:1], 1),
    **{f"DMLS {family}": lambda split, family=family: dmls(split, (family,)) for family in FAMILIES},
    "FLAML": flaml,
    "AutoGluon medium": lambda split: autogluon(split, "medium_quality"),
    "AutoGluon good": lambda split: autogluon(split, "good_quality"),
    **{f"Optuna {family}": lambda split, family=family: plain(split, family) for family in FAMILIES[:4]},
    **{f"{family} defaults": lambda split, family=family: default(split, family) for family in FAMILIES},
}


IMPORTS = {
    "DMLS": (
        "dmls_core.search.candidate",
        "dmls_core.serving.formats.treelite.gtil",
        "catboost",
        "lightgbm",
        "xgboost",
        "sklearn.ensemble",
    ),
    "Optuna": ("dmls_core.search.candidate", "lightgbm", "xgboost", "sklearn.ensemble", "pandas"),
    "FLAML": ("flaml.automl.automl",),
    "AutoGluon": ("autogluon.tabular",),
    "": ("lightgbm", "xgboost", "sklearn.ensemble", "pandas"),
}
"""Start of a method's name -> modules whose import its CPU seconds leave out."""


def environment() -> dict[str, str]:
    """Return the environment of a method's process: one thread, and DMLS importable."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    root = str(Path(__file__).resolve().parents[2])
    return (
        os.environ
        | threads
        | {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}
    )


def use_cpu_clock() -> None:
    """Make the CPU time of this process the clock of all that is imported afterwards."""
    start, cpu = time.time(), time.process_time
    time.time = lambda: start + cpu()
    time.monotonic = time.perf_counter = cpu


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    name, source, target, seconds, seed = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CPU, (round(MOST * float(seconds)) + GRACE,) * 2)
    use_cpu_clock()
    for module in next((found for start, found in IMPORTS.items() if name.startswith(start)), ()):
        importlib.import_module(module)
    split, started = Split.read(Path(source), float(seconds), int(seed)), time.process_time()
    found = METHODS[name](split)
    np.savez(target, **vars(found), cpu=time.process_time() - started)
