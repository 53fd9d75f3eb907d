"""Reconcile Triton with MLflow: every server serves the champion of every model, and the records say so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dmls_core.errors import DmlsError
from dmls_core.intake import report_served, report_stopped
from dmls_core.monitoring.prometheus import count
from dmls_core.store import Store, delete_served, read_served, write_served

if TYPE_CHECKING:
    from dmls_core.serving import Deployment, Repository
    from dmls_core.serving.triton.client import TritonClient

log = logging.getLogger(__name__)

BY = "the monitor, which makes Triton serve MLflow's champion"


@dataclass(slots=True)
class ReconcileResult:
    """Result of reconciling all models: one line for each repaired problem and for each failed model."""

    repaired: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __add__(self, other: ReconcileResult) -> ReconcileResult:
        """Return the lines of both."""
        return ReconcileResult(self.repaired + other.repaired, self.failures + other.failures)


def reconcile_all(
    store: Store,
    repository: Repository,
    servers: Sequence[TritonClient],
    champions: Callable[[], Mapping[str, int | None]],
    *,
    timeout: float = 0.0,
) -> ReconcileResult:
    """Make the servers serve MLflow's champions; a failing model does not stop the others.

    ``champions`` returns each model's champion as a version in the repository; a model with ``None`` is left
    alone unless a publisher was killed while it changed it. ``store`` holds counters and records. A model
    whose publisher is at work is skipped after ``timeout`` seconds.

    Raises:
        DmlsError: MLflow does not answer, or a server's address is wrong.
    """
    from dmls_core.serving import Deployment
    from dmls_core.serving.deployment.reconcile import differences, reconcile, remove_abandoned_candidate
    from dmls_core.serving.repository.intents import INTENTS, models_in
    from dmls_core.serving.repository.locks import BusyError
    from dmls_core.serving.triton.placement import unload_leftovers

    result = ReconcileResult()
    interrupted = models_in(repository.store.list(INTENTS))
    for model, version in champions().items():
        try:
            deployment, repair = Deployment(repository, servers, model), ""
            if model in interrupted or (version is not None and differences(deployment, version)):
                repair = reconcile(deployment, partial(_champion, champions, model), timeout=timeout)
                _correct_records(store, deployment)
            elif left := unload_leftovers(deployment.others, model):
                # Not in the run that loaded it elsewhere: clients may have the addresses of before.
                result.repaired.append(f"{model}: moved from Triton at {', '.join(left)}")
            if remove_abandoned_candidate(deployment):
                result.repaired.append(f"{model}: removed an abandoned candidate")
        except BusyError:
            continue  # a deployment is in progress
        except DmlsError as error:
            log.warning("%s cannot be repaired: %s", model, error)
            result.failures.append(f"{model}: {error}")
            continue
        if repair:
            log.warning("%s did not serve its champion; repaired: %s", model, repair)
            result.repaired.append(f"{model}: {repair}")
            team, _, job = model.partition(".")
            count(store, team, job, "repairs")
    return result


def _champion(champions: Callable[[], Mapping[str, int | None]], model: str) -> int | None:
    return champions().get(model)


def _correct_records(store: Store, deployment: Deployment) -> None:
    """Make the job's record and status say what is served."""
    team, _, job = deployment.model.partition(".")
    version, recorded = deployment.repository.serving(deployment.model), read_served(store, team, job)
    if version is None:
        if recorded:
            delete_served(store, team, job)
            report_stopped(store, team, job, recorded.version, BY)
    elif recorded is None or recorded.version != version:
        description = deployment.repository.read(deployment.model, version, "model.json")
        report_served(store, team, job, write_served(store, team, job, version, description, by=BY))
