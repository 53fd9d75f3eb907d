"""``plan``: choose the engine, the workers of the search, and the champion to compare with."""

from __future__ import annotations

from typing import Any

from dmls_core.airflow.placement import choose_engine
from dmls_core.airflow.study_database import study_environment
from dmls_core.airflow.tasks.base import JobRun, JobTask
from dmls_core.store.waiting_queue import enqueue


class PlanOperator(JobTask):
    """Choose the engine and the champion to compare with; ``search`` is mapped over the result."""

    def run_job(self, run: JobRun) -> list[dict[str, Any]]:
        """Return one entry for each worker of the search; the first is the leader."""
        spec = run.job.spec
        # Checked here, so that a spec that this platform cannot run fails before it waits for a slot.
        study_environment(run.job)
        engine = choose_engine(spec, run.settings.gpus)
        models = ", ".join(search.name for search in spec.models)
        workers = min(spec.search.workers, spec.n_trials)
        self.log.info("%s trials of %s on the %s engine by %s", spec.n_trials, models, engine, workers)
        plan: list[dict[str, Any]] = [{"worker": worker, "engine": engine} for worker in range(workers)]
        if champion := _champion(run):
            plan[0]["champion"] = champion  # only the leader scores on the holdout
        enqueue(run.store, engine, run.job.team, run.job.name, run.job.run_key)
        return plan


def _champion(run: JobRun) -> dict[str, Any] | None:
    """Return version and run key of the champion to compare with; ``None`` if there is none."""
    from dmls_core.tracking import champion_of

    found = champion_of(run.settings.mlflow_uri, run.job.model_name)
    if found is None or found.run_key == run.job.run_key:
        return None
    return {"version": found.version, "run_key": found.run_key}
