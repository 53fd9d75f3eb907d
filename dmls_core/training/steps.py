"""The steps of a run between loading the data and writing down the result."""

from __future__ import annotations

from collections.abc import Callable

from dmls_core.evaluate import scorer
from dmls_core.hardware import available_cpus
from dmls_core.models import METRICS
from dmls_core.models.engines import Engine, Fitted
from dmls_core.search import (
    SearchOutcome,
    SearchTask,
    Space,
    Trial,
    choose_searcher,
    contiguous_trials,
    make_folds,
)
from dmls_core.search.callbacks import early_stopping
from dmls_core.spec import ModelDefinition, Spec
from dmls_core.training.clock import SearchClock
from dmls_core.training.prepare import Prepared
from dmls_core.training.progress import Progress
from dmls_core.training.run_folder import RunFolder


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


def search(
    spec: Spec,
    task: SearchTask,
    space: Space,
    folder: RunFolder,
    progress: Progress,
    stop: Callable[[], bool],
) -> SearchOutcome:
    """Search, keeping each trial as it ends; trials of an earlier attempt are taken up."""
    done = contiguous_trials(folder.trials(task.engine.device))
    progress.resume(task, done)
    progress.seconds["search"] = sum(trial.seconds for trial in done)

    def on_trial(trial: Trial) -> None:
        folder.keep(trial)
        progress.trial(task, spec.search.metric, trial)

    searcher = choose_searcher(spec.search.strategy, task.engine)
    clock = SearchClock(folder, spec.search.timeout)
    timeout = clock.left(done)
    progress.limit(clock.remaining)
    with clock:
        return searcher.run(
            task,
            space,
            spec.n_trials,
            done=done,
            timeout=timeout,
            enough=early_stopping(spec.search.early_stop, task.direction),
            on_trial=on_trial,
            on_step=progress.step,
            stop=stop,
        )


def refit(task: SearchTask, outcome: SearchOutcome) -> Fitted:
    """Return the search's own model, or fit the best trial's hyperparameters on all training rows."""
    if outcome.fitted is not None:
        return outcome.fitted
    return task.engine.fit(
        task.model,
        outcome.params,
        task.features,
        task.target,
        n_classes=task.n_classes,
        seed=task.seed,
        threads=task.threads,
    )
