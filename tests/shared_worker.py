"""One trainer of a shared search whose fits cost nothing. Each leaves a file ``fits/<number>.<pid>``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dmls_core.models import CATALOGUE
from dmls_core.models.engines.forests import SklearnForestEngine
from dmls_core.search import Fold, SearchTask, Space, Trial
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.shared import Member, SharedSearch, SharedStudy, StudyDatabase, remove_studies
from dmls_core.search.strategies import SearchStrategy
from dmls_core.spec.hyperparameters import Range
from dmls_core.store import layout, open_store
from dmls_core.training.run_folder import RunFolder


class Engine(SklearnForestEngine):
    """An engine that fits nothing."""

    libraries = ()


class Costly:
    """An evaluator whose three steps take time; the fewest trees are best, and random forests."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds

    def suggested(self, space: Space) -> Space:
        return space

    def evaluate(
        self,
        task: SearchTask,
        space: Space,  # noqa: ARG002 - as the protocol has it
        number: int,
        params: Mapping[str, Any],
        *,
        should_prune: Callable[[int, float], bool],
        stop: Callable[[], bool],  # noqa: ARG002
    ) -> Trial:
        (self._folder / f"{number}.{os.getpid()}").touch()
        score = -abs(params["n_estimators"] - 300) / 1e6 - (task.model.family == "extra-trees")
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


def candidate(model: str, plan: SearchStrategy, folder: Path, seconds: float) -> ModelCandidate:
    rows = np.arange(6)
    task = SearchTask(
        model=CATALOGUE[model],
        engine=Engine(),  # type: ignore[arg-type]
        features=np.zeros((6, 1), np.float32),
        target=rows,
        truth=rows,
        n_classes=2,
        folds=(Fold(rows[:3], rows[3:]),),
        score=lambda _truth, prediction: float(prediction[0]),
        direction="maximize",
        seed=0,
        threads=1,
    )
    return ModelCandidate(
        task, Space({"n_estimators": Range(min=50, max=1_000_000)}, {}), plan, Costly(folder, seconds)
    )


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
    plan = SearchStrategy(wanted.get("sampler", "tpe"), wanted.get("pruning", "none"))
    models = wanted.get("models", ["random-forest-classifier"])
    candidates = [candidate(model, plan, fits, wanted.get("seconds", 0.05)) for model in models]
    database = StudyDatabase(url, beat=1, grace=wanted.get("grace", 4))
    study = SharedStudy(database, wanted.get("name", "key"), candidates, wanted["n_trials"])
    member = Member(wanted["worker"], wanted["workers"])

    def kept() -> list[Trial]:
        return folder.trials("cpu")

    def finished() -> bool:
        return (out / layout.RESULT).exists()

    if study.join(kept, finished=finished, leader=member.leads):
        search = SharedSearch(study, member, kept)
        search.run(
            timeout=wanted.get("timeout"),
            on_trial=folder.keep,
            on_slots=lambda _: None,
            stop=(out / "stop").exists,
            leave=(out / "leave").exists,
        )
        if member.leads and wanted.get("remove"):
            (out / layout.RESULT).write_text("{}")
            remove_studies(database, wanted.get("name", "key"), models)
    database.close()
