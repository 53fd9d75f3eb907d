"""``spec.toml`` to a spec that this release can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.models.availability import check_available
from dmls_core.models.catalogue import CATALOGUE
from dmls_core.models.engine_space import note_unsupported
from dmls_core.spec import Findings, Spec, SpecLimits, parse_spec
from dmls_core.spec.changes import Changes, changed_document
from dmls_core.spec.document import inspect_values
from dmls_core.spec.parse import check_document
from dmls_core.spec.read_tables import read_table


def load_spec(source: bytes, file: str = "spec.toml", *, limits: SpecLimits | None = None) -> Spec:
    """Parse and validate a spec against the catalogue.

    Args:
        source: content of ``spec.toml``.
        file: name of the file in messages.
        limits: how large it may be; read from the environment if left out.

    Raises:
        SpecError: with every issue in file order. What is not available yet, or not on the engine
            that the spec asks for, is told once all else is in order.
    """
    return parse_spec(source, CATALOGUE, file=file, limits=limits, checks=CHECKS)


def change_spec(spec: Spec, changes: dict[str, Any], file: str = "the run's configuration") -> RunChange:
    """Apply what a user changes for one run, and validate the outcome as if it had been written into a spec.

    Args:
        spec: the accepted one.
        changes: ``deploy``, ``n_trials``, ``seed``, ``data`` and ``hyperparameters``, as
            ``dmls_core.spec.Changes`` describes them.
        file: what messages call the place of the mistake.

    Raises:
        SpecError: with every issue.
    """
    limits = SpecLimits.from_environment()
    findings = Findings(file, None, limits)
    inspect_values(changes, findings, limits)
    findings.raise_any()
    read = read_table(Changes, changes, ("run",), findings)
    findings.raise_any()
    if read is None:
        raise SpecError(ValidationIssue("is no table of changes", file=file, key="run"))
    if not read.changes_spec:
        return RunChange(spec, deploy=read.deploy)
    top = changed_document(spec, read, findings)
    findings.raise_any()
    return RunChange(check_document(top, CATALOGUE, findings, limits, CHECKS), deploy=read.deploy)


@dataclass(frozen=True, slots=True)
class RunChange:
    """What a run of a job is asked to do otherwise.

    Attributes:
        spec: the run's; the job's own where nothing of it is changed.
        deploy: whether its model is to be deployed at the user's request.
    """

    spec: Spec
    deploy: bool = False


def _check_retrain(spec: Spec, findings: Findings) -> None:
    if spec.drift and spec.drift.action == "retrain" and not spec.chosen_by_run:
        findings.add(
            ("drift", "action"),
            "would train on the same data again: what was dropped is the job's data until it is replaced",
            found="retrain",
            expected="data by interval",
            hint='[data] path with {date}, or [schedule] cron with [columns] time; otherwise "report"',
        )


def _check_trials(spec: Spec, findings: Findings) -> None:
    if spec.n_trials < len(spec.models):
        findings.add(
            ("n_trials",),
            "is less than the number of models, each of which needs a trial",
            found=spec.n_trials,
            expected=f"at least {len(spec.models)}",
        )


def _check_engine(spec: Spec, findings: Findings) -> None:
    # "auto" takes an engine that can do what the spec asks.
    if spec.resources.engine == "auto":
        return
    for search in spec.models:
        note_unsupported(CATALOGUE[search.name], search.hyperparameters, spec.resources.engine, findings)


CHECKS = (check_available, _check_engine, _check_trials, _check_retrain)
"""What is checked once all else is in order."""
