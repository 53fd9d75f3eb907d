"""The phases of a run that is not finished yet; everything heavy is imported from here."""

from __future__ import annotations

from typing import Any

from dmls_core.evaluate import score_holdout
from dmls_core.evaluate.report import render_report
from dmls_core.models.engines import load_engine
from dmls_core.search import Space
from dmls_core.store import layout
from dmls_core.training.model_folder import export_checkpoint, write_companions
from dmls_core.training.prepare import prepare
from dmls_core.training.progress import Progress
from dmls_core.training.request import Job
from dmls_core.training.result import describe_run
from dmls_core.training.run_folder import RunFolder
from dmls_core.training.steps import make_problem, refit, search
from dmls_core.training.validation import SideBySide


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
    spec, model = job.spec, job.model
    with progress.phase("load"):
        engine = load_engine(job.engine, model.family)
        data = prepare(spec, model, [file.path for file in job.files])
        problem = make_problem(spec, model, engine, data)
    for warning in data.warnings:
        progress.warn(warning)
    with progress.phase("search"):
        space = Space.of(job.hyperparameters)
        progress.enter("searching", f"searching {', '.join(space.searched) or 'nothing'} of {model.name}")
        try:
            outcome = search(spec, problem, space, folder, progress, stop=validation.failed)
        finally:
            # Why the search was stopped matters more than what it says about that.
            validation.check()
    with progress.phase("refit"):
        progress.enter("refitting", f"fitting trial {outcome.best.number} on {len(data.train)} rows")
        fitted = refit(problem, outcome)
    model_folder = job.out / layout.MODEL
    with progress.phase("export"):
        progress.enter("exporting", "exporting the model and comparing it with the original")
        own = fitted.predict(engine.place(data.test))
        served = export_checkpoint(fitted, data.test, own, model_folder, threads=problem.threads)
    with progress.phase("score"):
        scores = score_holdout(spec.task, spec.search.metric, data.test_target, served)
        write_companions(data, served, model, spec.search.metric, scores.score, model_folder)
        result = describe_run(job, data, problem, outcome, fitted, scores)
    progress.seconds["validate"] = validation.finish()
    report = render_report(
        result | {"seconds": progress.rounded()}, [trial.as_json() for trial in outcome.trials]
    )
    (job.out / layout.REPORT).write_text(report, encoding="utf-8")
    result["artifacts"] = folder.upload(job.out)
    result["seconds"] = progress.rounded()
    result = folder.finish(result)
    progress.enter("finished", f"{result['metric']} {result['score']:.4f} on {len(data.test)} rows held out")
    return result
