"""The phases of a run that is not finished yet; everything heavy is imported from here."""

from __future__ import annotations

from typing import Any

from dmls_core.evaluate import score_holdout
from dmls_core.hardware import trim_heap
from dmls_core.serving.card import write_card
from dmls_core.store import layout
from dmls_core.training.candidates import describe, enter
from dmls_core.training.compare import contest
from dmls_core.training.depth_analysis import describe_size
from dmls_core.training.distributed_search import remove_study, search_models, share
from dmls_core.training.model_folder import export_checkpoint, write_companions
from dmls_core.training.progress import Progress, told
from dmls_core.training.report import look_closer, write_report
from dmls_core.training.request import Job
from dmls_core.training.result import describe_run
from dmls_core.training.run_folder import RunFolder
from dmls_core.training.steps import refit
from dmls_core.training.validation import SideBySide


def help_out(job: Job, folder: RunFolder, progress: Progress) -> dict[str, Any]:
    """Take part in a search that another trainer leads, until there is no trial left to take.

    Raises:
        UserError: the spec or the data is wrong.
        PlatformError: a service or the machine failed.
    """
    with progress.phase("load"):
        entrants = enter(job)
    progress.enter("searching", describe(entrants))
    share(job, [entrant.candidate() for entrant in entrants], folder, progress, stop=lambda: False)
    return {"schema": 1, "status": "helped", "run_key": job.key, "worker": job.request.worker}


def work(job: Job, folder: RunFolder, progress: Progress, validation: SideBySide) -> dict[str, Any]:
    """Search, refit, export and score; return ``result.json``, which is written last.

    Args:
        job: what to do.
        folder: where trials, progress and results go.
        progress: tells how it goes.
        validation: runs already; nothing is finished before it has ended well.

    Raises:
        UserError: the spec or the data is wrong.
        PlatformError: a service or the machine failed.
    """
    spec = job.spec
    with progress.phase("load"):
        entrants = enter(job)
    for warning in entrants[0].data.warnings:
        progress.warn(warning)
    with progress.phase("search"):
        progress.enter("searching", describe(entrants))
        try:
            winner, outcome = search_models(job, entrants, folder, progress, stop=validation.failed)
        finally:
            # Why the search was stopped matters more than what it says about that.
            validation.check()
    trim_heap()
    task, data = winner.task, winner.data
    model, engine = task.model, task.engine
    with progress.phase("refit"):
        progress.enter("refitting", f"fitting trial {outcome.best.number} on {len(data.train)} rows")
        fitted = refit(task, outcome)
    model_folder = job.out / layout.MODEL
    with progress.phase("export"):
        progress.enter("exporting", "exporting the model and comparing it with the original")
        own = fitted.predict(engine.place(data.test))
        served = export_checkpoint(fitted, data.test, own, model_folder, threads=task.threads)
    trim_heap()
    with progress.phase("score"):
        scores = score_holdout(spec.task, spec.search.metric, data.test_target, served)
        write_companions(data, served, model, spec.search.metric, scores.score, model_folder)
        result = describe_run(job, data, task, outcome, fitted, scores)
        result["comparison"] = contest(spec, data, served, entrants[0].data.rival)
    with progress.phase("report"):
        insight = look_closer(spec, data, task, fitted, served, result)
        result["size"] = describe_size(data, task, spec.search.metric, model_folder)
    for warning in insight.warnings:
        progress.warn(warning)
    progress.seconds["validate"] = validation.finish()
    write_card(model_folder, result, spec.as_json())
    write_report(job.out / layout.REPORT, result | {"seconds": progress.rounded()}, spec, outcome, insight)
    result["artifacts"] = folder.upload(job.out)
    result["seconds"] = progress.rounded()
    result = folder.finish(result)
    remove_study(job, folder, progress)
    if found := result["comparison"]:
        progress.note(f"against the champion, version {found['champion_version']}: {found['reason']}")
    progress.enter(
        "finished", f"{result['metric']} {told(result['score'])} on {len(data.test)} rows held out"
    )
    return result
