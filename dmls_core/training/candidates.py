"""The models of a run, each with its data, its search space and its objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dmls_core.evaluate import scorer
from dmls_core.hardware import available_cpus
from dmls_core.models import METRICS
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines import Engine
from dmls_core.search import SearchTask, Space, make_folds
from dmls_core.search.strategies import ModelCandidate, make_candidate
from dmls_core.spec import ModelDefinition, Spec
from dmls_core.training.champion import fetch_champion
from dmls_core.training.prepare import Prepared, prepare
from dmls_core.training.request import Job


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """One model of a run, ready to be searched, with its encoded data."""

    candidate: ModelCandidate
    data: Prepared

    @property
    def task(self) -> SearchTask:
        """Data and metric of its trials."""
        return self.candidate.task


def prepare_models(job: Job) -> list[PreparedModel]:
    """Read the data and prepare every model; raise ``DataError`` if the data does not fit the spec.

    Models that take missing values and models that do not have separate matrices; models of one kind on one
    engine share a matrix.
    """
    spec = job.spec
    champion = fetch_champion(job) if job.request.champion and job.request.leads else None
    paths = [file.path for file in job.files]
    prepared: dict[bool, Prepared] = {}
    tasks: dict[tuple[bool, str], SearchTask] = {}
    models: list[PreparedModel] = []
    for requested in job.models:
        model, kind = requested.model, requested.model.missing_values
        if kind not in prepared:
            prepared[kind] = prepare(spec, model, paths, requested.engine, champion)
        data, engine = prepared[kind], load_engine(requested.engine, model.name)
        shared = tasks.get((kind, requested.engine))
        task = replace(shared, model=model, engine=engine) if shared else make_task(spec, model, engine, data)
        tasks[kind, requested.engine] = task
        space = Space.of(requested.hyperparameters)
        models.append(PreparedModel(make_candidate(spec.search.strategy, task, space, spec.n_trials), data))
    return models


def describe_search(models: Sequence[PreparedModel]) -> str:
    """Return a text such as ``searching max_depth of xgboost-classifier``."""
    parts = (
        f"{', '.join(model.candidate.space.searched) or 'nothing'} of {model.task.model.name}"
        for model in models
    )
    return f"searching {'; '.join(parts)}"


def make_task(spec: Spec, model: ModelDefinition, engine: Engine, data: Prepared) -> SearchTask:
    """Put the training rows on the engine's device and assign them to folds."""
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
