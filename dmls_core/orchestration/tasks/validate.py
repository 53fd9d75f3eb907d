"""``validate``: is what was admitted still what is there?"""

from __future__ import annotations

from typing import Any

from dmls_core.errors import DataError, Problem
from dmls_core.orchestration.tasks.base import JobRun, JobTask


class ValidateOperator(JobTask):
    """Checks that the data objects are those of the admitted version.

    The content is checked by Great Expectations in the trainer, side by side with the search: it costs
    seconds to import and would otherwise delay every run.
    """

    def run_job(self, run: JobRun) -> dict[str, Any]:
        """Return the number of objects and bytes.

        Raises:
            DataError: an object is gone or was replaced since its admission.
        """
        run.reporter.running("validating the data")
        problems = []
        for data in run.job.record.data:
            found = run.store.head(data.key)
            if found is None:
                problems.append(
                    Problem(
                        "the data is no longer there",
                        key=data.key,
                        hint="drop it again: that makes a new run",
                    )
                )
            elif found.etag != data.etag:
                problems.append(
                    Problem(
                        "the data was replaced after this run's submission was accepted",
                        key=data.key,
                        found=found.etag,
                        expected=data.etag,
                        hint="the new data has a run of its own",
                    )
                )
        if problems:
            raise DataError(problems)
        sizes = [data.size for data in run.job.record.data]
        return {"objects": len(sizes), "bytes": sum(sizes)}
