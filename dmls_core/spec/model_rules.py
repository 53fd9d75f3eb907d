"""What must hold between ``[search]``, ``[evaluation]`` and the models, and their defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dmls_core.settings import SpecLimits
from dmls_core.spec.definitions import ModelDefinition
from dmls_core.spec.findings import Findings
from dmls_core.spec.hyperparameters import Range, space_size
from dmls_core.spec.model import ModelSearch
from dmls_core.spec.tables import Evaluation, Search
from dmls_core.spec.words import looks_bare

DEFAULT_TRIALS = 20
"""Trials of a spec that does not say, where there are that many different ones."""


def read_trials(
    value: object, searches: Sequence[ModelSearch], findings: Findings, limits: SpecLimits
) -> int:
    """Return ``n_trials``, or the default where ``value`` is ``None``."""
    if value is None:
        sizes = [space_size(search.hyperparameters) for search in searches]
        return min(DEFAULT_TRIALS, sum(size or DEFAULT_TRIALS for size in sizes))
    right = f"an integer from 1 to {limits.trials:,}"
    if isinstance(value, bool) or not isinstance(value, int):
        hint = "leave the quotes out" if looks_bare(value) else f"write n_trials = {DEFAULT_TRIALS}"
        findings.add(("n_trials",), "must be an integer", found=value, expected=right, hint=hint)
        return 0
    if not 1 <= value <= limits.trials:
        findings.add(("n_trials",), "is out of bounds", found=value, expected=right)
    return value


def check_search(
    search: Search,
    model: ModelDefinition,
    searches: Sequence[ModelSearch],
    findings: Findings,
    limits: SpecLimits,
) -> Search:
    """Return the search with its metric written in by the catalogue's name."""
    metric = _metric(search.metric, model) if search.metric else model.default_metric
    if not metric:
        findings.add(
            ("search", "metric"),
            f"is not a metric for {model.task}",
            found=search.metric,
            expected=", ".join(model.metrics),
            word=search.metric,
            names=model.metrics,
        )
    if search.strategy == "grid":
        _check_grid(searches, findings, limits)
    if search.strategy == "cma-es":
        _check_cma_es(searches, findings)
    return search.model_copy(update={"metric": metric})


def _metric(name: str, model: ModelDefinition) -> str:
    for metric in model.metrics.values():
        if name == metric.name or name in metric.aliases:
            return metric.name
    return ""


def _check_grid(searches: Sequence[ModelSearch], findings: Findings, limits: SpecLimits) -> None:
    points = sum(
        math.prod(space.grid_size for space in search.hyperparameters.values()) for search in searches
    )
    if points > limits.grid:
        findings.add(
            ("search", "strategy"),
            "makes a grid of too many points",
            found=points,
            expected=f"at most {limits.grid:,}",
            hint="take larger steps, or another strategy",
        )


def _check_cma_es(searches: Sequence[ModelSearch], findings: Findings) -> None:
    """CMA-ES adapts to ranges; values beside them are drawn at random, as Optuna does it."""
    for search in searches:
        if not any(isinstance(space, Range) for space in search.hyperparameters.values()):
            findings.add(
                ("search", "strategy"),
                f"adapts to ranges of numbers alone, and {search.name} has none",
                found="cma-es",
                expected="at least one hyperparameter with min and max",
                hint='strategy = "tpe" searches values as well',
            )


def check_evaluation(
    evaluation: Evaluation, model: ModelDefinition, has_time: bool, findings: Findings
) -> Evaluation:
    """Return the evaluation with the split that suits the task written in."""
    path = ("evaluation", "split")
    regression = model.task == "regression"
    if "split" not in evaluation.model_fields_set:
        return evaluation.model_copy(update={"split": "random" if regression else "stratified"})
    if regression and evaluation.split == "stratified":
        right = '"random" or "time"'
        findings.add(path, "cannot be stratified for a regressor", found="stratified", expected=right)
    if evaluation.split == "time" and not has_time:
        hint = 'write time = "…" in [columns]'
        findings.add(path, "needs the column that tells the time", found="time", hint=hint)
    return evaluation
