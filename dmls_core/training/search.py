"""The search of a run: its models, its workers, its time, and the trials in its folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from dmls_core.errors import PlatformError, StoreError
from dmls_core.html.formats import counted
from dmls_core.search.callbacks import early_stopping
from dmls_core.search.candidate import ModelCandidate, expected_trials

# Here, not in a function: Optuna keeps failed imports, and with them the variables of every calling function.
from dmls_core.search.optimize import SearchWorker, optimize
from dmls_core.search.study.candidates import TrialRecord
from dmls_core.search.study.storage import LocalStorage, StudyStorage
from dmls_core.search.study.study import SearchStudy, remove_studies
from dmls_core.search.task import SearchOutcome
from dmls_core.search.trial import Trial, contiguous_trials
from dmls_core.search.winners import pick_winner, pick_winners
from dmls_core.spec import Spec
from dmls_core.training.prepare import PreparedModel, describe_search
from dmls_core.training.progress import Progress
from dmls_core.training.request import TrainingJob
from dmls_core.training.run_folder import RunFolder, SearchClock


def search_models(
    job: TrainingJob,
    models: Sequence[PreparedModel],
    folder: RunFolder,
    progress: Progress,
    stop: Callable[[], bool],
) -> list[tuple[PreparedModel, SearchOutcome]]:
    """Search until all trials have ended; return the best model and the outcome.

    If several models are returned, their mean is to be served; the first one is the best.

    Raise ``DataError`` if no trial is complete, and ``PlatformError`` if the study database failed.
    """
    candidates = [model.candidate for model in models]
    trials = run_worker(job, models, folder, progress, stop)
    mean = job.spec.search.ensemble == "auto"
    winners = pick_winners(candidates, trials) if mean else [pick_winner(candidates, trials)]
    shortfall = describe_shortfall(job.spec, candidates, trials)
    if shortfall:
        progress.note(shortfall)
    return [
        (models[candidates.index(candidate)], replace(outcome, shortfall=shortfall))
        for candidate, outcome in winners
    ]


def describe_shortfall(spec: Spec, candidates: Sequence[ModelCandidate], trials: Sequence[Trial]) -> str:
    """Say why there are fewer trials than the spec requests; return an empty text if there are not."""
    scored = sum(trial.state != "failed" for trial in trials)
    if scored >= spec.n_trials:
        return ""
    taken = Counter(trial.model or candidates[0].model for trial in trials)
    ended = f"the search ended after {scored:,} of {counted(spec.n_trials, 'trial')}"
    if not all(candidate.exhausted(taken[candidate.model]) for candidate in candidates):
        rules = [name for name in ("timeout", "early_stop") if getattr(spec.search, name) is not None]
        causes = [f"by {' or '.join(rules)}"] if rules else []
        if scored < len(trials):
            causes.append("since too many failed")
        return ", ".join([ended, " or ".join(causes)] if causes else [ended])
    scored_at_once = {
        name: None
        for candidate in candidates
        for name in candidate.space.searched
        if name not in candidate.objective.suggested.searched
    }
    one_fit = f": one fit scores all values of {', '.join(scored_at_once)}" if scored_at_once else ""
    return f"{ended}, since no other hyperparameters are left to try{one_fit}"


def run_worker(
    job: TrainingJob,
    models: Sequence[PreparedModel],
    folder: RunFolder,
    progress: Progress,
    stop: Callable[[], bool],
) -> list[Trial]:
    """Run this worker's part of the search (the leader's lasts to the end); return the ended trials."""
    candidates = [model.candidate for model in models]
    spec, task = job.spec, candidates[0].task
    worker = SearchWorker(job.request.worker, spec.search.max_workers if job.study else 1)

    def read_trials() -> list[Trial]:
        trials = _read_trials(candidates, folder)
        return trials if job.study else contiguous_trials(trials)

    def keep(trial: Trial, continued: bool) -> None:
        folder.keep(trial)
        shown = trial if len(candidates) > 1 else replace(trial, model="")
        progress.trial(task, spec.search.metric, shown, continued=continued)

    def on_records(records: Mapping[int, TrialRecord]) -> None:
        if job.study:
            progress.others(
                task, [r.trial for r in records.values() if r.trial and r.trial.value is not None]
            )

    earlier_trials = read_trials()
    engines = [(candidate.task.engine, candidate.space) for candidate in candidates]
    progress.expect(expected_trials(engines, candidates[0].strategy, spec.n_trials))
    progress.resume(task, earlier_trials, shared=bool(job.study))
    progress.enter("searching", describe_search(job, models))
    if not job.study:
        progress.seconds["search"] = sum(trial.seconds for trial in earlier_trials)
    # Only the leader keeps the time: helpers come and go.
    clock = SearchClock(folder, spec.search.timeout if worker.leads else None)
    timeout = clock.left(earlier_trials, workers=worker.workers) if worker.leads else spec.search.timeout
    progress.limit(clock.remaining if worker.leads else timeout)
    with _storage(job) as storage:
        study = SearchStudy(
            storage, _study_name(job, folder), candidates, spec.n_trials, read_trials=read_trials, keep=keep
        )
        if study.join(finished=lambda: folder.result() is not None, leader=worker.leads):
            with clock:
                optimize(
                    study,
                    worker,
                    timeout=timeout,
                    should_stop=early_stopping(spec.search.early_stop, task.direction),
                    on_progress=progress.step,
                    on_records=on_records,
                    stop=stop,
                    leave=partial(_must_leave, folder, worker.number, progress),
                )
        return read_trials() if job.study else study.trials()


def _read_trials(candidates: Sequence[ModelCandidate], folder: RunFolder) -> list[Trial]:
    """Return the trials in the run's folder that each model's current engine fitted."""
    engines = {candidate.model: candidate.task.engine.device for candidate in candidates}
    return [
        trial
        for engine in sorted(set(engines.values()))
        for trial in folder.trials(engine)
        if engines.get(trial.model) == engine
    ]


@contextmanager
def _storage(job: TrainingJob) -> Iterator[StudyStorage]:
    if not job.study:
        yield LocalStorage()
        return
    # Imported here, since it imports SQLAlchemy and a driver that other runs do not need.
    from dmls_core.search.study.database import StudyDatabase

    database = StudyDatabase(job.study)
    try:
        yield database
    finally:
        database.close()


def _must_leave(folder: RunFolder, worker: int, progress: Progress) -> bool:
    """Return whether this helper's slot is needed for another run."""
    try:
        leaves = folder.must_leave(worker)
    except StoreError:
        return False  # without an answer it stays
    if leaves:
        progress.note("leaving the search: another run needs this slot")
    return leaves


def _study_name(job: TrainingJob, folder: RunFolder) -> str:
    """Return the name of the run's study: of this run, in this folder, on these engines."""
    engines = "-".join(requested.engine for requested in job.models)
    return f"{job.request.team}.{job.request.name}/{job.key}/{folder.token}/{engines}"


def remove_study(job: TrainingJob, folder: RunFolder, progress: Progress) -> None:
    """Remove a finished run's study from the database; its trials are in the run's folder."""
    if not job.study:
        return
    try:
        with _storage(job) as storage:
            models = [requested.model.name for requested in job.models]
            remove_studies(storage, _study_name(job, folder), models)
    except PlatformError as error:
        # The run is finished, and the rest of the study in the database does no harm.
        progress.warn(f"the study stays in its database: {error}")
