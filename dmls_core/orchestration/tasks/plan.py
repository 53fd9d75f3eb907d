"""``plan``: which engine trains, and how many workers search."""

from __future__ import annotations

from typing import Any

from dmls_core.orchestration.engine import choose_engine
from dmls_core.orchestration.tasks.base import JobRun, JobTask


class PlanOperator(JobTask):
    """Decides the engine and shares the search out; ``search`` is mapped over what it returns."""

    def run_job(self, run: JobRun) -> list[dict[str, Any]]:
        """Return one entry for each worker of the search."""
        engine = choose_engine(run.job.spec, run.settings.gpus)
        self.log.info("%s trials of %s on the %s engine", run.job.spec.n_trials, run.job.spec.model, engine)
        return [{"worker": worker, "engine": engine} for worker in range(run.job.spec.search.workers)]
