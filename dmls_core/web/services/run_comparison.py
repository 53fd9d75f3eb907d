"""Compare runs: their scores, what differs, and which one is better beyond chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from dmls_core.airflow.database import Session
from dmls_core.models.metrics import METRICS
from dmls_core.store import Store
from dmls_core.web.services.job_details import differences
from dmls_core.web.services.runs import Run, RunFiles, read_run, read_run_files

_SIGNIFICANT = 0.05
"""Largest p-value of a significant difference."""

_ROW_METRICS = frozenset({"accuracy", "mae"})
"""Means of the recorded losses: runs with the same held-out rows are compared row by row."""

_WIDTH = 2 * 1.96
"""Standard errors in a 95 % interval."""

Json = Mapping[str, Any]


class ComparisonRow(BaseModel):
    """One key, with its value in each run."""

    key: str
    values: list[Any]


class ScoreRow(ComparisonRow):
    """One metric on the holdout of each run."""

    direction: str = Field(description="`maximize` or `minimize`; empty for an unknown metric.")
    best: list[int] = Field(description="Positions of the best value, if the values differ.")


class Contrast(BaseModel):
    """A run compared with the one that has the best score."""

    run_id: str
    name: str
    difference: float = Field(description="By how much its score is worse.")
    rows: int | None = Field(description="Held-out rows, if both runs held out the same ones.")
    p_value: float | None = Field(description="Of a difference by chance; null if it cannot be computed.")
    significant: bool
    message: str


class RunComparison(BaseModel):
    """Runs side by side."""

    runs: list[Run]
    best: int | None = Field(
        description="Position of the run with the best score; null if others have it too."
    )
    winner: int | None = Field(description="The same, if it is significantly better than all others.")
    message: str
    contrasts: list[Contrast]
    scores: list[ScoreRow] = Field(description="All metrics on the holdout, that of the search first.")
    differences: list[ComparisonRow] = Field(
        description="Tuned parameters, data, models and settings that differ."
    )
    other_differences: list[ComparisonRow] = Field(
        description="Parameters that were not tuned, and library versions that differ."
    )


def compare_runs(session: Session, store: Store, team: str, name: str, run_ids: list[str]) -> RunComparison:
    """Return the scores of runs and what differs between them; raise ``NotFoundError`` for an unknown run."""
    runs = [read_run(session, team, name, run_id) for run_id in run_ids]
    return describe_comparison(runs, [read_run_files(store, team, name, run.run_key) for run in runs])


def describe_comparison(runs: Sequence[Run], files: Sequence[RunFiles]) -> RunComparison:
    """Compare runs by the files of each."""
    results = [entry.result or {} for entry in files]
    metrics = [result.get("holdout", {}).get("metrics", {}) for result in results]
    searched = {result.get("metric") for result in results}
    names = sorted(set().union(*metrics), key=lambda name: (name not in searched, name))
    documents = [_document(run, result) for run, result in zip(runs, results, strict=True)]
    others = [_other_document(result) for result in results]
    best, contrasts, message = _contrast(runs, files)
    clear = best is not None and bool(contrasts) and all(contrast.significant for contrast in contrasts)
    tied = any(not contrast.difference for contrast in contrasts)
    return RunComparison(
        runs=list(runs),
        best=None if tied else best,
        winner=best if clear else None,
        message=message,
        contrasts=contrasts,
        scores=[_score_row(key, [entry.get(key) for entry in metrics]) for key in names],
        differences=_rows(documents),
        other_differences=_rows(others),
    )


def _score_row(key: str, values: list[float | None]) -> ScoreRow:
    direction = METRICS[key].direction if key in METRICS else ""
    defined = [value for value in values if value is not None]
    best: list[int] = []
    if direction and len(set(defined)) > 1:
        top = max(defined) if direction == "maximize" else min(defined)
        best = [at for at, value in enumerate(values) if value == top]
    return ScoreRow(key=key, values=values, direction=direction, best=best)


def _rows(documents: Sequence[Json]) -> list[ComparisonRow]:
    return [ComparisonRow(key=row.key, values=list(row.values)) for row in differences(*documents)]


def _tuned(result: Json) -> set[str]:
    return set(result.get("tuned") or result.get("best_params", {}))


def _document(run: Run, result: Json) -> dict[str, Any]:
    parameters, data = result.get("best_params", {}), result.get("data", {})
    return {
        "version": run.version,
        "interval": " to ".join(run.interval) if run.interval else None,
        **{key: result.get(key) for key in ("model", "engine", "n_trials", "seed", "best_trial")},
        "parameters": {key: value for key, value in parameters.items() if key in _tuned(result)},
        "data": {**{key: data.get(key) for key in ("rows", "hash")}, "split": data.get("split", {})},
        "features": ", ".join(result.get("features", ())),
        "seconds": result.get("seconds", {}).get("total"),
    }


def _other_document(result: Json) -> dict[str, Any]:
    parameters = result.get("best_params", {})
    return {
        "parameters": {key: value for key, value in parameters.items() if key not in _tuned(result)},
        "versions": result.get("versions", {}),
    }


def _contrast(runs: Sequence[Run], files: Sequence[RunFiles]) -> tuple[int | None, list[Contrast], str]:
    """Return the position of the best score, the comparisons of all other runs with it, and a summary."""
    scored = {at: entry.result for at, entry in enumerate(files) if entry.result}
    if len(scored) < 2:
        return None, [], "Fewer than two of these runs have a result."
    metrics = {(result["metric"], result["direction"]) for result in scored.values()}
    if len(metrics) > 1:
        return None, [], "The runs have different metrics: they have no common winner."
    ((metric, direction),) = metrics
    better = max if direction == "maximize" else min
    best = better(scored, key=lambda at: scored[at]["score"])
    contrasts = [_compare(runs[at], files[at], files[best], metric) for at in scored if at != best]
    unclear = [contrast.name for contrast in contrasts if not contrast.significant]
    tied = [contrast.name for contrast in contrasts if not contrast.difference]
    if tied:
        message = f"No winner: {' and '.join([runs[best].name, *tied])} have the same {metric}."
    elif not unclear:
        message = f"The winner is {runs[best].name}: its {metric} is better beyond chance."
    else:
        message = (
            f"No clear winner: {runs[best].name} has the best {metric}, but the difference to "
            f"{' and '.join(unclear)} may be chance."
        )
    return best, contrasts, message


def _compare(run: Run, files: RunFiles, best: RunFiles, metric: str) -> Contrast:
    result, other = files.result or {}, best.result or {}
    difference = abs(result["score"] - other["score"])
    losses, others = _losses(files), _losses(best)
    rows: int | None = None
    p_value: float | None
    same = _same_rows(result, other)
    if comparison := _champion_comparison(result, other, metric):
        return _contrast_of(comparison, run, difference, result)
    if metric in _ROW_METRICS and same and losses and len(losses) == len(others):
        rows = len(losses)
        p_value = paired_p_value(losses, others)
        loss = (files.insight or {})["loss"]
        means = sum(losses) / rows, sum(others) / rows
        basis = f"on the same {rows:,} held-out rows, {loss} {means[0]:.4g} against {means[1]:.4g}"
        significant = p_value < _SIGNIFICANT and means[0] > means[1]
    else:
        p_value = _unpaired_p_value(result, other)
        basis = f"judged by both intervals, on {'the same' if same else 'different'} held-out rows"
        significant = p_value is not None and p_value < _SIGNIFICANT
    if not difference:
        basis = f"on {'the same' if same else 'different'} held-out rows"
    chance = "no p-value" if p_value is None else "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"
    return Contrast(
        run_id=run.run_id,
        name=run.name,
        difference=difference,
        rows=rows,
        p_value=p_value,
        significant=significant,
        message=f"{metric} is {difference:.4f} worse, {basis} ({chance})"
        if difference
        else f"{metric} is the same, {basis}",
    )


def _champion_comparison(result: Json, other: Json, metric: str) -> Json:
    """Return the comparison that one of two runs made with the other one's model, if it is conclusive."""
    for challenger, champion in ((result, other), (other, result)):
        comparison: Json = challenger.get("comparison") or {}
        if (
            comparison.get("conclusive")
            and comparison["metric"] == metric
            and comparison["champion_run_key"] == champion.get("run_key")
        ):
            return comparison
    return {}


def _contrast_of(comparison: Json, run: Run, difference: float, result: Json) -> Contrast:
    """Return the contrast of a run with a better score by the comparison of champion and challenger."""
    low, high = comparison["interval"]
    is_champion = comparison["champion_run_key"] == result["run_key"]
    return Contrast(
        run_id=run.run_id,
        name=run.name,
        difference=difference,
        rows=comparison["rows"],
        p_value=None,
        significant=low > 0 if is_champion else high < 0,
        message=comparison["reason"],
    )


def _losses(files: RunFiles) -> list[float]:
    return (files.insight or {}).get("losses") or []


def _same_rows(one: Json, other: Json) -> bool:
    """Return whether two runs held out the same rows: of the same data, split in the same way."""
    keys = ("hash", "split", "holdout_rows")
    return all(one["data"].get(key) == other["data"].get(key) for key in keys)


def paired_p_value(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the two-sided p-value of a paired z-test on each row's loss (for classes: McNemar's test)."""
    deltas = [one - other for one, other in zip(losses, others, strict=True)]
    mean = sum(deltas) / len(deltas)
    variance = sum((value - mean) ** 2 for value in deltas) / max(1, len(deltas) - 1)
    if variance == 0:
        return 1.0 if mean == 0 else 0.0
    return math.erfc(abs(mean) / math.sqrt(variance / len(deltas)) / math.sqrt(2))


def _unpaired_p_value(one: Json, other: Json) -> float | None:
    """Return the p-value of the difference of two scores, by their intervals."""
    intervals = [result["holdout"].get("interval") for result in (one, other)]
    if None in intervals:
        return None
    error = math.hypot(*((high - low) / _WIDTH for low, high in intervals))
    return math.erfc(abs(one["score"] - other["score"]) / error / math.sqrt(2)) if error else None
