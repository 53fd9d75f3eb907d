"""Load ``spec.toml`` and changes of a single run, checked against the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.models.catalogue import CATALOGUE
from dmls_core.models.engine_space import note_unsupported
from dmls_core.settings import SpecLimits
from dmls_core.spec import IssueCollector, Spec, parse_spec
from dmls_core.spec.parse import Changes, changed_document, check_document
from dmls_core.spec.table_parser import read_table
from dmls_core.spec.toml_io import inspect_values


def load_spec(source: bytes, file: str = "spec.toml", *, limits: SpecLimits | None = None) -> Spec:
    """Parse and validate a spec against the catalogue; by default with the environment's limits on its size.

    Raises:
        SpecError: with every issue in file order. Features that are not available yet, or not on the
            requested engine, are reported once the spec is valid otherwise.
    """
    return parse_spec(source, CATALOGUE, file=file, limits=limits, checks=CHECKS)


def change_spec(spec: Spec, changes: dict[str, Any], file: str = "the run's configuration") -> RunChange:
    """Apply a user's changes for one run (see ``Changes``), and validate the result like a spec.

    Raises:
        SpecError: with every issue; ``file`` names the changes in messages.
    """
    limits = SpecLimits.from_environment()
    issues = IssueCollector(file, None, limits)
    inspect_values(changes, issues, limits)
    issues.raise_any()
    read = read_table(Changes, changes, ("run",), issues)
    issues.raise_any()
    if read is None:
        raise SpecError(ValidationIssue("is not a table of changes", file=file, key="run"))
    if not read.changes_spec:
        return RunChange(spec, deploy=read.deploy)
    top = changed_document(spec, read, issues)
    issues.raise_any()
    return RunChange(check_document(top, CATALOGUE, issues, limits, CHECKS), deploy=read.deploy)


@dataclass(frozen=True, slots=True)
class RunChange:
    """A run's spec after a user's changes (or the job's own), and whether to deploy the run's model."""

    spec: Spec
    deploy: bool = False


def _check_available(spec: Spec, issues: IssueCollector) -> None:
    """Note valid settings that this release does not support yet."""
    unavailable = (
        (("data", "partition"), spec.data.partition is not None, "partition", "leave it out"),
        (("columns", "weight"), spec.columns.weight is not None, "weight", "leave it out"),
        (("evaluation", "split"), spec.evaluation.split == "time", "a split by time", 'split = "random"'),
        (("resources", "gpus"), (spec.resources.gpus or 0) > 1, "more than one GPU", "write 1"),
    )
    for path, present, what, hint in unavailable:
        if present:
            issues.add(path, f"{what} is not available yet", hint=hint)


def _check_retrain(spec: Spec, issues: IssueCollector) -> None:
    if spec.drift and spec.drift.action == "retrain" and not spec.chosen_by_run:
        issues.add(
            ("drift", "action"),
            "would train on the same data again: the job's data stays the same until it is uploaded again",
            found="retrain",
            expected="data by interval",
            hint='[data] path with {date}, or [schedule] cron with [columns] time; otherwise "report"',
        )


def _check_trials(spec: Spec, issues: IssueCollector) -> None:
    if spec.n_trials < len(spec.models):
        issues.add(
            ("n_trials",),
            "is less than the number of models; each needs a trial",
            found=spec.n_trials,
            expected=f"at least {len(spec.models)}",
        )


def _check_engine(spec: Spec, issues: IssueCollector) -> None:
    # "auto" chooses an engine that supports the spec.
    if spec.resources.engine == "auto":
        return
    for search in spec.models:
        note_unsupported(CATALOGUE[search.name], search.hyperparameters, spec.resources.engine, issues)


CHECKS = (_check_available, _check_engine, _check_trials, _check_retrain)
"""Checks of a spec that is valid otherwise."""
