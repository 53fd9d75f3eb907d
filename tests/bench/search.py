"""Compare our search with common ones: CPU seconds, wall-clock seconds, and scores on rows never searched.

Run it with ``python tests/bench/search.py``; every figure of a table comes from one process. Larger data is
run in pieces: ``--data multiclass --seeds 1 --competitors halving``.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.evaluate import scorer
from dmls_core.hardware import available_cpus
from dmls_core.models import CATALOGUE, METRICS
from dmls_core.models.catalogue import load_engine
from dmls_core.search.candidate import make_candidate
from dmls_core.search.optimize import search
from dmls_core.search.task import SearchTask, Space, make_folds
from dmls_core.spec import Choice, Range
from tests.bench.report import Row, run
from tests.bench.scoreboard_methods import space_of

FOLDS = 3


@dataclass(frozen=True)
class Split:
    """Rows to search on and rows to judge by."""

    x: np.ndarray
    y: np.ndarray
    x_held: np.ndarray
    y_held: np.ndarray


@dataclass(frozen=True)
class Case:
    """One model on one data set, and the space that every method searches."""

    data: str
    load: Callable[[], tuple[np.ndarray, np.ndarray]]
    model: str
    space: dict[str, Range | Choice]

    @property
    def metric(self) -> str:
        return "accuracy" if CATALOGUE[self.model].task == "classification" else "r2"

    def split(self, seed: int) -> Split:
        from sklearn.model_selection import train_test_split

        x, y = self.load()
        classes = self.metric == "accuracy"
        x, y = x.astype(np.float32), y.astype(np.int32 if classes else np.float64)
        x, x_held, y, y_held = train_test_split(
            x, y, test_size=0.2, random_state=seed, stratify=y if classes else None
        )
        return Split(np.ascontiguousarray(x), y, np.ascontiguousarray(x_held), y_held)

    def score(self, model: Any, split: Split) -> float:
        """Score anything with scikit-learn's ``predict``."""
        from sklearn.metrics import accuracy_score, r2_score

        judge = accuracy_score if self.metric == "accuracy" else r2_score
        return float(judge(split.y_held, model.predict(split.x_held)))


def _bundled(name: str) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    def load() -> tuple[np.ndarray, np.ndarray]:
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(return_X_y=True)

    return load


def _multiclass(rows: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_classification

    return make_classification(
        rows, 54, n_informative=20, n_classes=7, flip_y=0.1, class_sep=0.7, random_state=0
    )


def _noisy(rows: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, 30))
    signal = x[:, :10] @ generator.normal(size=10) + 2 * x[:, 0] * x[:, 1] + 3 * np.sin(x[:, 2]) * x[:, 3]
    return x, signal + generator.normal(scale=2, size=rows)


FOREST: dict[str, Range | Choice] = {
    "n_estimators": Range(min=50, max=500),
    "max_depth": Range(min=4, max=20),
    "max_features": Choice(values=("sqrt", "log2", 0.3, 0.5)),
}
CLASSIFIER = FOREST | {"criterion": Choice(values=("gini", "entropy"))}


def _default(model: str) -> dict[str, Any]:
    """Return the space that a spec without hyperparameters has; its 30 trials are 30 configurations."""
    return dict(space_of(CATALOGUE[model]).searched)


CASES = (
    *(
        Case(name, _bundled(name), "random-forest-classifier", CLASSIFIER)
        for name in ("digits", "breast_cancer", "wine")
    ),
    Case("diabetes", _bundled("diabetes"), "random-forest-regressor", FOREST),
    Case("multiclass", _multiclass, "random-forest-classifier", CLASSIFIER),
    Case("noisy", _noisy, "random-forest-regressor", FOREST),
)
DEFAULT_SPACE = tuple(
    Case(f"{name}-default", load, model, _default(model))
    for name, load, model in (
        ("digits", _bundled("digits"), "random-forest-classifier"),
        ("breast_cancer", _bundled("breast_cancer"), "random-forest-classifier"),
        ("diabetes", _bundled("diabetes"), "random-forest-regressor"),
        ("noisy-2500", lambda: _noisy(2_500), "random-forest-regressor"),
        ("multiclass-6000", lambda: _multiclass(6_000), "random-forest-classifier"),
    )
)


@dataclass(frozen=True)
class Setting:
    """What a method is run with; ``seconds`` is what ours took."""

    case: Case
    split: Split
    seed: int
    trials: int
    seconds: float


def ours(setting: Setting) -> tuple[float, Any]:
    """Search as ``strategy = "auto"`` does; return the score and the parameters."""
    case, split = setting.case, setting.split
    model = CATALOGUE[case.model]
    classes = int(split.y.max()) + 1 if model.task == "classification" else 0
    task = SearchTask(
        model=model,
        engine=load_engine("cpu", model.name),
        features=split.x,
        target=split.y,
        truth=split.y,
        n_classes=classes,
        folds=make_folds(split.y, FOLDS, n_classes=classes, seed=setting.seed),
        score=scorer(case.metric),
        direction=METRICS[case.metric].direction,
        seed=setting.seed,
        threads=available_cpus(),
    )

    candidate = make_candidate("auto", task, Space.of(case.space), setting.trials)
    _, outcome = search([candidate], setting.trials)
    fitted = outcome.fitted or task.engine.fit(
        model,
        outcome.params,
        split.x,
        split.y,
        n_classes=classes,
        seed=setting.seed,
        threads=task.threads,
    )
    return task.score(split.y_held, fitted.predict(split.x_held)), outcome.params


def one_fit(setting: Setting, params: dict[str, Any]) -> tuple[float, Any]:
    """Fit once what ours chose, with scikit-learn alone."""
    model = _estimator(setting, **params).fit(setting.split.x, setting.split.y)
    return setting.case.score(model, setting.split), params


def plain(setting: Setting) -> tuple[float, Any]:
    """Optuna's TPE over scikit-learn's cross-validation, and a refit."""
    import optuna
    from sklearn.model_selection import cross_val_score

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    case, split = setting.case, setting.split

    def objective(trial: optuna.Trial) -> float:
        params = {
            name: trial.suggest_categorical(name, wanted.values)
            if isinstance(wanted, Choice)
            else trial.suggest_int(name, int(wanted.min), int(wanted.max))
            for name, wanted in case.space.items()
        }
        model = _estimator(setting, **params)
        return float(cross_val_score(model, split.x, split.y, cv=_folds(setting), scoring=case.metric).mean())

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=setting.seed))
    study.optimize(objective, n_trials=setting.trials)
    model = _estimator(setting, **study.best_params).fit(split.x, split.y)
    return case.score(model, split), study.best_params


def randomized(setting: Setting) -> tuple[float, Any]:
    """scikit-learn's random search."""
    from sklearn.model_selection import RandomizedSearchCV

    search = RandomizedSearchCV(
        _estimator(setting),
        _lists(setting.case.space),
        n_iter=setting.trials,
        cv=_folds(setting),
        scoring=setting.case.metric,
        random_state=setting.seed,
    ).fit(setting.split.x, setting.split.y)
    return setting.case.score(search, setting.split), search.best_params_


def halving(setting: Setting) -> tuple[float, Any]:
    """scikit-learn's successive halving over the number of trees."""
    from sklearn.experimental import enable_halving_search_cv  # noqa: F401
    from sklearn.model_selection import HalvingRandomSearchCV

    space = _lists(setting.case.space)
    trees = space.pop("n_estimators")
    search = HalvingRandomSearchCV(
        _estimator(setting),
        space,
        n_candidates=setting.trials,
        resource="n_estimators",
        min_resources=max(1, trees[-1] // 27),
        max_resources=trees[-1],
        cv=_folds(setting),
        scoring=setting.case.metric,
        random_state=setting.seed,
    ).fit(setting.split.x, setting.split.y)
    return setting.case.score(search, setting.split), search.best_params_


def flaml_forests(setting: Setting) -> tuple[float, Any]:
    """FLAML with our time, among forests only, in the space that it has for them."""
    return _flaml(setting, ["rf"])


def flaml_free(setting: Setting) -> tuple[float, Any]:
    """FLAML with our time, free to choose."""
    return _flaml(setting, "auto")


def _flaml(setting: Setting, estimators: Any) -> tuple[float, Any]:
    from flaml import AutoML

    automl = AutoML()
    automl.fit(
        setting.split.x,
        setting.split.y,
        task="classification" if setting.case.metric == "accuracy" else "regression",
        metric=setting.case.metric,
        time_budget=max(1.0, setting.seconds),
        estimator_list=estimators,
        n_jobs=available_cpus(),
        seed=setting.seed,
        verbose=0,
    )
    return setting.case.score(automl, setting.split), automl.best_config


COMPETITORS: dict[str, Callable[[Setting], tuple[float, Any]]] = {
    "plain": plain,
    "randomized": randomized,
    "halving": halving,
    "flaml-forests": flaml_forests,
    "flaml-free": flaml_free,
}


def _estimator(setting: Setting, **params: Any) -> Any:
    from sklearn import ensemble

    from dmls_core.models.engines.forests import ESTIMATORS

    model = CATALOGUE[setting.case.model]
    kind = getattr(ensemble, ESTIMATORS[model.family, model.task])
    return kind(random_state=setting.seed, n_jobs=available_cpus(), **params)


def _folds(setting: Setting) -> Any:
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = StratifiedKFold if setting.case.metric == "accuracy" else KFold
    return kind(FOLDS, shuffle=True, random_state=setting.seed)


def _lists(space: dict[str, Range | Choice]) -> dict[str, list[Any]]:
    return {
        name: list(wanted.values)
        if isinstance(wanted, Choice)
        else list(range(int(wanted.min), int(wanted.max) + 1))
        for name, wanted in space.items()
    }


def _timed(method: Callable[[], tuple[float, Any]]) -> dict[str, Any]:
    cpu, wall = _cpu(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        score, params = method()
    return {"score": score, "cpu": _cpu() - cpu, "wall": time.perf_counter() - wall, "params": params}


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Run every method on every case and seed; print each as it ends."""
    known = {"all": CASES, "default": DEFAULT_SPACE}
    names = [case.data for case in known.get(arguments.data, ())] or arguments.data.split(",")
    wanted = arguments.competitors.split(",") if arguments.competitors != "all" else list(COMPETITORS)
    rows = []
    for case in (case for case in (*CASES, *DEFAULT_SPACE) if case.data in names):
        found: dict[str, list[dict[str, Any]]] = {}
        for seed in range(arguments.seeds):
            split = case.split(seed)
            setting = Setting(case, split, seed, arguments.trials, 0.0)
            first = _timed(lambda setting=setting: ours(setting))
            setting = Setting(case, split, seed, arguments.trials, first["wall"])
            params = first["params"]
            methods = {"one fit": lambda setting=setting, params=params: one_fit(setting, params)} | {
                name: lambda setting=setting, name=name: COMPETITORS[name](setting) for name in wanted if name
            }
            _keep(case, seed, "ours", first, found)
            for name, method in methods.items():
                _keep(case, seed, name, _timed(method), found)
        rows += [_row(case, name, results, found["ours"]) for name, results in found.items()]
    return rows


def _keep(
    case: Case, seed: int, name: str, result: dict[str, Any], found: dict[str, list[dict[str, Any]]]
) -> None:
    found.setdefault(name, []).append(result)
    print(
        f"{case.data} {case.model} seed {seed} {name}: {result['score']:.4f}, "
        f"{result['cpu']:.1f} CPU s, {result['wall']:.1f} s, {result['params']}",
        file=sys.stderr,
        flush=True,
    )


def _row(case: Case, name: str, results: list[dict[str, Any]], own: list[dict[str, Any]]) -> Row:
    scores = [result["score"] for result in results]
    cpu, wall = (float(np.mean([result[key] for result in results])) for key in ("cpu", "wall"))
    return {
        "data": case.data,
        "model": case.model,
        "method": name,
        "CPU s": cpu,
        "wall s": wall,
        "CPU/ours": cpu / float(np.mean([result["cpu"] for result in own])),
        "wall/ours": wall / float(np.mean([result["wall"] for result in own])),
        "holdout": f"{np.mean(scores):.4f}",
        "spread": f"{np.std(scores):.4f}",
        "ours minus it": f"{np.mean([o['score'] for o in own]) - np.mean(scores):+.4f}",
    }


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--seeds", 5, "seeds, from 0"),
        (
            "--data",
            "all",
            "all, default (in the default spaces), or by commas: "
            + ", ".join(case.data for case in (*CASES, *DEFAULT_SPACE)),
        ),
        ("--trials", 30, "trials of each search"),
        ("--competitors", "all", f"what to compare with, by commas: {', '.join(COMPETITORS)}"),
    )
