"""``spec.toml`` to a spec that this release can run."""

from __future__ import annotations

from dmls_core.models.availability import check_available
from dmls_core.models.catalogue import CATALOGUE
from dmls_core.models.engine_space import note_unsupported
from dmls_core.spec import Findings, Spec, SpecLimits, parse_spec


def load_spec(source: bytes, file: str = "spec.toml", *, limits: SpecLimits | None = None) -> Spec:
    """Parse and validate a spec against the catalogue.

    Args:
        source: content of ``spec.toml``.
        file: name of the file in messages.
        limits: how large it may be; read from the environment if left out.

    Raises:
        SpecError: with every problem in file order. What is not available yet, or not on the engine
            that the spec asks for, is told once all else is in order.
    """
    return parse_spec(
        source,
        CATALOGUE,
        file=file,
        limits=limits,
        checks=(check_available, _check_engine, _check_trials, _check_retrain),
    )


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
