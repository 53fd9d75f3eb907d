"""Runs side by side."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from dmls_core.airflow.metadata import Session
from dmls_core.store import Store
from dmls_core.web.services.job_details import differences
from dmls_core.web.services.runs import Run, read_run, read_run_files


class ComparisonRow(BaseModel):
    """One key, with its value in each run."""

    key: str
    values: list[Any]


class Comparison(BaseModel):
    """Runs side by side."""

    runs: list[Run]
    scores: list[ComparisonRow] = Field(description="All metrics on the holdout.")
    differences: list[ComparisonRow] = Field(description="Parameters, data, and versions that differ.")


def compare_runs(session: Session, store: Store, team: str, name: str, run_ids: list[str]) -> Comparison:
    """Return the scores of some runs and what differs between them.

    Raises:
        NotFoundError: the job does not have one of the runs.
        StoreError: the store cannot be read.
    """
    runs = [read_run(session, team, name, run_id) for run_id in run_ids]
    results = [read_run_files(store, team, name, run.run_key).result or {} for run in runs]
    metrics = [result.get("holdout", {}).get("metrics", {}) for result in results]
    documents = [
        {
            "version": run.version,
            "interval": " to ".join(run.interval) if run.interval else None,
            **{key: result.get(key) for key in ("model", "engine", "n_trials", "seed")},
            "parameters": result.get("best_params", {}),
            "data": {key: result.get("data", {}).get(key) for key in ("rows", "hash")},
            "versions": result.get("versions", {}),
        }
        for run, result in zip(runs, results, strict=True)
    ]
    names = sorted(set().union(*metrics))
    return Comparison(
        runs=runs,
        scores=[ComparisonRow(key=name, values=[found.get(name) for found in metrics]) for name in names],
        differences=[ComparisonRow(key=row.key, values=list(row.values)) for row in differences(*documents)],
    )
