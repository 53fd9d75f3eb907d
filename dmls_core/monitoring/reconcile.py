"""Reconcile Triton with MLflow: every server serves the champion of every model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dmls_core.errors import DmlsError
from dmls_core.monitoring.prometheus import count
from dmls_core.store import Store

if TYPE_CHECKING:
    from dmls_core.serving import Repository
    from dmls_core.serving.client import TritonClient

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ReconcileResult:
    """Result of reconciling all models: one line for each repaired problem and for each failed model."""

    repaired: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def reconcile_all(
    store: Store,
    repository: Repository,
    servers: Sequence[TritonClient],
    champions: Callable[[], Mapping[str, int | None]],
) -> ReconcileResult:
    """Make the servers serve MLflow's champions; a failing model does not stop the others.

    ``champions`` returns each model's champion as a version in the repository; ``store`` holds the counters.

    Raises:
        DmlsError: MLflow does not answer, or a server's address is wrong.
    """
    from dmls_core.serving import Deployment
    from dmls_core.serving.locks import BusyError
    from dmls_core.serving.reconcile import differences, reconcile, remove_abandoned_candidate

    result = ReconcileResult()
    for model, version in champions().items():
        try:
            deployment, found = Deployment(repository, servers, model), ""
            if version is not None and differences(deployment, version):
                found = reconcile(deployment, partial(_champion, champions, model))
            if remove_abandoned_candidate(deployment):
                result.repaired.append(f"{model}: removed an abandoned candidate")
        except BusyError:
            continue  # a deployment is in progress
        except DmlsError as error:
            log.warning("%s cannot be repaired: %s", model, error)
            result.failures.append(f"{model}: {error}")
            continue
        if found:
            log.warning("%s did not serve its champion; repaired: %s", model, found)
            result.repaired.append(f"{model}: {found}")
            team, _, job = model.partition(".")
            count(store, team, job, "repairs")
    return result


def _champion(champions: Callable[[], Mapping[str, int | None]], model: str) -> int | None:
    return champions().get(model)
