"""Compare specs, parameters, and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from dmls_core.airflow.metadata import Session
from dmls_core.store import Store
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
    """Return the scores of runs and what differs between them; raise ``NotFoundError`` for an unknown run."""
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


class Difference(NamedTuple):
    """A key whose values differ; a value is ``None`` in documents that lack the key."""

    key: str
    values: tuple[Any, ...]


def differences(*documents: Mapping[str, Any]) -> list[Difference]:
    """Return the leaves that are not the same in all ``documents``, sorted by key."""
    leaves = [flatten(document) for document in documents]
    keys = sorted(set().union(*leaves))
    rows = [Difference(key, tuple(found.get(key) for found in leaves)) for key in keys]
    return [row for row in rows if any(value != row.values[0] for value in row.values[1:])]


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of a document by dotted key.

    Named tables in a list, such as a spec's models, are keyed by name: a new entry changes no other keys.
    """
    found: dict[str, Any] = {}
    for key, value in document.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flatten(value, f"{path}.")
        elif isinstance(value, Sequence) and value and all(_is_named(entry) for entry in value):
            for entry in value:
                rest = {name: part for name, part in entry.items() if name != "name"}
                found |= flatten(rest, f"{path}.{entry['name']}.") or {f"{path}.{entry['name']}": True}
        else:
            found[path] = list(value) if isinstance(value, tuple) else value
    return found


def _is_named(entry: object) -> bool:
    return isinstance(entry, Mapping) and isinstance(entry.get("name"), str)
