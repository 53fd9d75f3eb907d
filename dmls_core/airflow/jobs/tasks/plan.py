"""The task ``plan``: decide how many trainers search on which engine."""

from __future__ import annotations

from typing import Any

from dmls_core.airflow.jobs.tasks.base import JobRun, JobTask
from dmls_core.airflow.runners.trainer import choose_engine, nodes_environment, study_environment
from dmls_core.store.waiting_queue import enqueue


class PlanOperator(JobTask):
    """Choose the engine and the champion to compare with; ``search`` is mapped over the result."""

    def run_job(self, run: JobRun) -> list[dict[str, Any]]:
        """Return one entry for each worker of the search; the first is the leader's."""
        spec = run.job.spec
        # Checked here, so that a spec that this platform cannot run fails before it waits for a slot.
        shared = study_environment(run.job)
        nodes_environment(run.job, run.settings)
        engine = choose_engine(spec, run.settings.gpus)
        models = ", ".join(search.name for search in spec.models)
        workers = min(spec.search.max_workers, spec.n_trials) if shared else 1
        auto = spec.search.workers == "auto"
        trainers = f"up to {workers}" if auto else workers
        self.log.info("%s trials of %s on the %s engine by %s", spec.n_trials, models, engine, trainers)
        plan: list[dict[str, Any]] = [{"worker": 0, "engine": engine, "helpers": workers - 1}]
        plan += [{"worker": worker, "engine": engine, "auto": auto} for worker in range(1, workers)]
        if champion := _champion(run):
            for entry in plan:  # the leader also compares with it
                entry["champion"] = champion
        enqueue(run.store, engine, run.job.team, run.job.name, run.job.run_key)
        run.reporter.running(
            "Waiting for a free trainer. `dmls show` and the job's page show its position in the queue."
        )
        return plan


def _champion(run: JobRun) -> dict[str, Any] | None:
    """Return version and run key of the champion to compare with; ``None`` if there is none."""
    from dmls_core.tracking.registry import champion_of

    champion = champion_of(run.settings.mlflow_uri, run.job.model_name)
    if champion is None or champion.run_key == run.job.run_key:
        return None
    return {"version": champion.version, "run_key": champion.run_key}
