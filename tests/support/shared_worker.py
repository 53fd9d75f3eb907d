"""One trainer of a shared search whose fits cost nothing. Each leaves a file ``fits/<number>.<pid>``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from optuna.pruners import NopPruner

from dmls_core.models import CATALOGUE
from dmls_core.models.engines.forests import SklearnForestEngine
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.objective import Objective
from dmls_core.search.optimize import SearchWorker, optimize
from dmls_core.search.samplers.strategy import SearchStrategy, load_strategy
from dmls_core.search.study.database import StudyDatabase
from dmls_core.search.study.study import SearchStudy, remove_studies
from dmls_core.search.task import Fold, SearchTask, Space
from dmls_core.search.trial import Trial
from dmls_core.spec.definitions import Choice, Range
from dmls_core.store import layout, open_store
from dmls_core.training.run_folder import RunFolder


class Engine(SklearnForestEngine):
    """An engine that fits nothing."""

    libraries = ()


class Costly(Objective):
    """An objective whose three steps take time; 300 trees are best, and random forests."""

    def __init__(self, task: SearchTask, space: Space, folder: Path, seconds: float) -> None:
        super().__init__(task, space)
        self._folder = folder
        self._seconds = seconds

    def evaluate(
        self,
        number: int,
        params: Mapping[str, Any],
        *,
        should_prune: Callable[[int, float], bool],
        stop: Callable[[], bool],  # noqa: ARG002
    ) -> Trial:
        (self._folder / f"{number}.{os.getpid()}").touch()
        score = -abs(params["n_estimators"] - 300) / 1e6 - (self.task.model.family == "extra-trees")
        intermediate_values: list[float] = []
        for step in range(1, 4):
            time.sleep(self._seconds / 3)
            intermediate_values.append(score)
            if step < 3 and should_prune(step, score):
                break
        (self._folder / f"{number}.{os.getpid()}").write_text("done")
        state = "complete" if len(intermediate_values) == 3 else "pruned"
        return Trial(
            number,
            state,
            "cpu",
            params,
            score,
            (score,),
            self._seconds,
            steps=len(intermediate_values),
            intermediate_values=tuple(intermediate_values),
        )


def costly(model: str, strategy: SearchStrategy, folder: Path, seconds: float) -> ModelCandidate:
    rows = np.arange(6)
    task = SearchTask(
        model=CATALOGUE[model],
        engine=Engine(),  # type: ignore[arg-type]
        features=np.zeros((6, 1), np.float32),
        target=rows,
        truth=rows,
        n_classes=2,
        folds=(Fold(rows[:3], rows[3:]),),
        score=lambda _truth, prediction, _weights: float(prediction[0]),
        direction="maximize",
        seed=0,
        threads=1,
    )
    space = Space({"n_estimators": Range(min=50, max=1_000_000)}, {})
    return ModelCandidate(Costly(task, space, folder, seconds), strategy)


def forest(n_trials: int) -> ModelCandidate:
    """Return a real forest whose whole space is tried, so that nothing depends on the clock."""
    from dmls_core.evaluate import scorer
    from dmls_core.models.catalogue import load_engine
    from dmls_core.search.candidate import make_candidate
    from dmls_core.search.task import make_folds

    model = CATALOGUE["random-forest-classifier"]
    generator = np.random.default_rng(0)
    features = generator.normal(size=(300, 6)).astype(np.float32)
    target = (features[:, 0] + features[:, 1] ** 2 + generator.normal(size=300) > 1).astype(np.int32)
    task = SearchTask(
        model=model,
        engine=load_engine("cpu", model.name),
        features=features,
        target=target,
        truth=target,
        n_classes=2,
        folds=make_folds(target, 3, n_classes=2, seed=0),
        score=scorer("accuracy"),
        direction="maximize",
        seed=0,
        threads=1,
    )
    space = Space.of(
        {
            "n_estimators": Range(min=40, max=200),
            "max_depth": Range(min=2, max=8),
            "max_features": Choice(values=(0.17, 0.34, 0.5, 0.67, 0.84, 1.0)),
            "min_samples_leaf": Choice(values=(1, 5)),
        }
    )
    return make_candidate("auto", task, space, n_trials)


def work(url: str, out: Path, wanted: dict[str, Any]) -> None:
    """Do one trainer's part: what a process of its own is started with.

    Args:
        url: the database's address.
        out: the run's folder; errors go to ``errors.<pid>`` in it.
        wanted: which trainer it is, and of what search.
    """
    sys.stderr = (out / f"errors.{os.getpid()}").open("w", buffering=1)
    fits = out / "fits"
    fits.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(open_store(str(out)))
    folder.claim("key")
    strategy = load_strategy(wanted.get("strategy", "tpe"))
    if "strategy" not in wanted:
        strategy.pruner = NopPruner  # type: ignore[method-assign]
    models = wanted.get("models", ["random-forest-classifier"])
    candidates = (
        [forest(wanted["n_trials"])]
        if wanted.get("forest")
        else [costly(model, strategy, fits, wanted.get("seconds", 0.05)) for model in models]
    )
    database = StudyDatabase(url, heartbeat_interval=1, grace_period=wanted.get("grace", 4))
    worker = SearchWorker(wanted["worker"], wanted["workers"])
    name = wanted.get("name", "key")
    study = SearchStudy(
        database,
        name,
        candidates,
        wanted["n_trials"],
        read_trials=lambda: folder.trials("cpu"),
        keep=lambda trial, _: folder.keep(trial),
    )

    if study.join(finished=(out / layout.RESULT).exists, leader=worker.leads):
        optimize(
            study,
            worker,
            timeout=wanted.get("timeout"),
            stop=(out / "stop").exists,
            leave=(out / "leave").exists,
        )
        if worker.leads and wanted.get("remove"):
            (out / layout.RESULT).write_text("{}")
            remove_studies(database, name, models)
    database.close()
