"""``plan``: which engine trains, and how many workers search."""

from __future__ import annotations

from typing import Any

from dmls_core.orchestration.engine import choose_engine
from dmls_core.orchestration.study import study_environment
from dmls_core.orchestration.tasks.base import JobRun, JobTask


class PlanOperator(JobTask):
    """Decides the engine and shares the search out; ``search`` is mapped over what it returns."""

    def run_job(self, run: JobRun) -> list[dict[str, Any]]:
        """Return one entry for each worker of the search; the first leads.

        Raises:
            SpecError: the spec asks for several, and the platform cannot have them share a search.
        """
        spec = run.job.spec
        # Asked here, so that a spec that this platform cannot run fails before it waits for a slot.
        study_environment(run.job)
        engine = choose_engine(spec, run.settings.gpus)
        models = ", ".join(search.name for search in spec.models)
        workers = min(spec.search.workers, spec.n_trials)
        self.log.info("%s trials of %s on the %s engine by %s", spec.n_trials, models, engine, workers)
        return [{"worker": worker, "engine": engine} for worker in range(workers)]
