"""The models of a run, each with its data, its space and its searcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmls_core.evaluate import scorer
from dmls_core.hardware import available_cpus
from dmls_core.models import METRICS
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines import Engine
from dmls_core.search import (
    Searcher,
    SearchTask,
    Space,
    choose_searcher,
    make_folds,
)
from dmls_core.search.candidate import ModelCandidate
from dmls_core.spec import ModelDefinition, Spec
from dmls_core.training.champion import fetch_champion
from dmls_core.training.prepare import Prepared, prepare
from dmls_core.training.request import Job


@dataclass(frozen=True, slots=True)
class Entrant:
    """One model of a run.

    Attributes:
        task: what its trials are scored on.
        space: what is searched.
        searcher: what searches it where it is the only one.
        data: encoded as it needs it.
    """

    task: SearchTask
    space: Space
    searcher: Searcher
    data: Prepared

    def candidate(self) -> ModelCandidate:
        """Return the model as a search takes it that has several models or several trainers."""
        return ModelCandidate.of(self.task, self.space, self.searcher)


def enter(job: Job) -> list[Entrant]:
    """Read the data and make every model of the spec ready.

    Models that take missing values and models that do not have matrices of their own; models of one kind on
    one engine share them.

    Raises:
        DataError: the data does not fit the spec, or there is too little of it.
    """
    spec = job.spec
    champion = fetch_champion(job) if job.request.champion and job.request.leads else None
    paths = [file.path for file in job.files]
    prepared: dict[bool, Prepared] = {}
    tasks: dict[tuple[bool, str], SearchTask] = {}
    entrants: list[Entrant] = []
    for requested in job.models:
        model, kind = requested.model, requested.model.missing_values
        if kind not in prepared:
            prepared[kind] = prepare(spec, model, paths, requested.engine, champion)
        data, engine = prepared[kind], load_engine(requested.engine, model.name)
        shared = tasks.get((kind, requested.engine))
        task = replace(shared, model=model, engine=engine) if shared else make_task(spec, model, engine, data)
        tasks[kind, requested.engine] = task
        searcher = choose_searcher(spec.search.strategy, engine)
        entrants.append(Entrant(task, Space.of(requested.hyperparameters), searcher, data))
    return entrants


def describe(entrants: Sequence[Entrant]) -> str:
    """Say what is searched: ``searching max_depth of xgboost-classifier``."""
    parts = (
        f"{', '.join(entrant.space.searched) or 'nothing'} of {entrant.task.model.name}"
        for entrant in entrants
    )
    return f"searching {'; '.join(parts)}"


def make_task(spec: Spec, model: ModelDefinition, engine: Engine, data: Prepared) -> SearchTask:
    """Put the training rows on the engine's device and deal out the folds."""
    return SearchTask(
        model=model,
        engine=engine,
        features=engine.place(data.train),
        target=engine.place(data.train_target),
        truth=data.train_target,
        n_classes=data.n_classes,
        folds=make_folds(
            data.train_target, spec.search.folds, n_classes=data.n_classes, seed=spec.search.seed
        ),
        score=scorer(spec.search.metric),
        direction=METRICS[spec.search.metric].direction,
        seed=spec.search.seed,
        threads=available_cpus(),
    )
