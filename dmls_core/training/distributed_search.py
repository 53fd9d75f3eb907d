"""The search of a run that has several models, several trainers, or both."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dmls_core.errors import PlatformError, StoreError
from dmls_core.search import (
    SearchOutcome,
    SearchTask,
    Space,
    Trial,
    choose_searcher,
    contiguous_trials,
)
from dmls_core.search.callbacks import early_stopping
from dmls_core.search.candidate import ModelCandidate
from dmls_core.search.competition import compete, pick_winner
from dmls_core.settings import QUEUE_VARIABLE
from dmls_core.spec import Spec
from dmls_core.store import open_store
from dmls_core.store.waiting_queue import has_waiting_run
from dmls_core.training.candidates import Entrant
from dmls_core.training.progress import Progress
from dmls_core.training.request import Job
from dmls_core.training.run_folder import RunFolder, SearchClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dmls_core.search.shared.slots import TrialRecord


def search_models(
    job: Job,
    entrants: Sequence[Entrant],
    folder: RunFolder,
    progress: Progress,
    stop: Callable[[], bool],
) -> tuple[Entrant, SearchOutcome]:
    """Search as the spec and the number of trainers ask for; return the winner and what was found.

    Raises:
        DataError: no trial finished.
        PlatformError: the study's database failed.
    """
    if not job.study and len(entrants) == 1:
        (only,) = entrants
        return only, search(job.spec, only.task, only.space, folder, progress, stop)
    candidates = [entrant.candidate() for entrant in entrants]
    if job.study:
        share(job, candidates, folder, progress, stop)
        trials = kept_trials(candidates, folder)
    else:
        trials = _compete(job, candidates, folder, progress, stop)
    winner, outcome = pick_winner(candidates, trials)
    return next(one for one in entrants if one.task.model.name == winner.model), outcome


def kept_trials(candidates: Sequence[ModelCandidate], folder: RunFolder) -> list[Trial]:
    """Return the trials in the run's folder, as far as each model's present engine fitted them."""
    engines = {candidate.model: candidate.task.engine.device for candidate in candidates}
    return [
        trial
        for engine in sorted(set(engines.values()))
        for trial in folder.trials(engine)
        if engines.get(trial.model) == engine
    ]


def _compete(
    job: Job,
    candidates: Sequence[ModelCandidate],
    folder: RunFolder,
    progress: Progress,
    stop: Callable[[], bool],
) -> list[Trial]:
    done = contiguous_trials(kept_trials(candidates, folder))
    first = candidates[0].task
    progress.resume(first, done)
    progress.seconds["search"] = sum(trial.seconds for trial in done)

    def on_trial(trial: Trial) -> None:
        folder.keep(trial)
        progress.trial(first, job.spec.search.metric, trial)

    clock = SearchClock(folder, job.spec.search.timeout)
    timeout = clock.left(done)
    progress.limit(clock.remaining)
    with clock:
        return compete(
            candidates,
            job.spec.n_trials,
            done=done,
            timeout=timeout,
            enough=early_stopping(job.spec.search.early_stop, first.direction),
            on_trial=on_trial,
            stop=stop,
        )


def share(
    job: Job,
    candidates: Sequence[ModelCandidate],
    folder: RunFolder,
    progress: Progress,
    stop: Callable[[], bool],
) -> None:
    """Do this trainer's part of a search that several share; the leader's ends when all trials have.

    Raises:
        PlatformError: the study's database failed.
    """
    # Here, since they import SQLAlchemy and a driver that other runs do without.
    from dmls_core.search.shared import Member, SharedSearch, SharedStudy, StudyDatabase

    first = candidates[0].task
    member = Member(job.request.worker, job.spec.search.workers)

    def kept() -> list[Trial]:
        return kept_trials(candidates, folder)

    def on_trial(trial: Trial) -> None:
        folder.keep(trial)
        progress.trial(first, job.spec.search.metric, trial)

    def on_slots(slots: Mapping[int, TrialRecord]) -> None:
        progress.others(first, [slot for slot in slots.values() if slot.scored])

    # The leader alone keeps the time: helpers come and go.
    clock = SearchClock(folder, job.spec.search.timeout if member.leads else None)
    timeout = clock.left(kept(), workers=member.workers) if member.leads else job.spec.search.timeout
    progress.limit(clock.remaining if member.leads else timeout)
    database = StudyDatabase(job.study)
    try:
        study = SharedStudy(database, study_name(job, folder), candidates, job.spec.n_trials)
        if study.join(kept, finished=lambda: folder.result() is not None, leader=member.leads):
            with clock:
                SharedSearch(study, member, kept).run(
                    timeout=timeout,
                    enough=early_stopping(job.spec.search.early_stop, first.direction),
                    on_trial=on_trial,
                    on_slots=on_slots,
                    stop=stop,
                    leave=partial(_needed_elsewhere, progress),
                )
    finally:
        database.close()


def _needed_elsewhere(progress: Progress) -> bool:
    """Say whether a run waits for its first trainer while this one is an extra of another."""
    url = os.environ.get(QUEUE_VARIABLE, "")
    try:
        waits = bool(url) and has_waiting_run(open_store(url))
    except StoreError:
        return False  # who cannot know stays
    if waits:
        progress.note("another run waits for a trainer: this one leaves, the others go on")
    return waits


def study_name(job: Job, folder: RunFolder) -> str:
    """Return the name of the run's study: this run's, in this folder, on these engines."""
    engines = "-".join(requested.engine for requested in job.models)
    return f"{job.request.team}.{job.request.name}/{job.key}/{folder.token}/{engines}"


def remove_study(job: Job, folder: RunFolder, progress: Progress) -> None:
    """Remove a finished run's study, if it has one; its trials are in the run's folder."""
    if not job.study:
        return
    from dmls_core.search.shared import StudyDatabase, remove_studies

    try:
        database = StudyDatabase(job.study)
        try:
            models = [requested.model.name for requested in job.models]
            remove_studies(database, study_name(job, folder), models)
        finally:
            database.close()
    except PlatformError as error:
        # The model is there and told of: what is left in the database harms nobody.
        progress.warn(f"the study stays in its database: {error}")


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
