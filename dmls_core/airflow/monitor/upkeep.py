"""What the monitor repairs: served versions that are not the champion's."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial

from dmls_core.airflow.connections import open_repository
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import DmlsError
from dmls_core.monitoring.counters import count
from dmls_core.store import Store

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Repaired:
    """What became of the served models.

    Attributes:
        repaired: what was wrong and is not any more, a line each.
        failed: what could not be mended, a line each.
    """

    repaired: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def repair_served(store: Store, settings: AirflowSettings) -> Repaired:
    """Have Triton serve MLflow's champions; a model that cannot be mended hides no other.

    Raises:
        DmlsError: MLflow does not answer, or Triton's addresses are wrong.
    """
    from dmls_core.serving import Deployment, triton_servers
    from dmls_core.serving.locks import BusyError
    from dmls_core.serving.reconcile import differences, reconcile, remove_abandoned_candidate
    from dmls_core.tracking import champions

    done = Repaired()
    repository = open_repository(settings)
    with triton_servers(settings.triton_http, settings.triton_grpc, key=settings.load_key()) as servers:
        for model, version in champions(settings.mlflow_uri).items():
            try:
                deployment, wrong = Deployment(repository, servers, model), ""
                if version is not None and differences(deployment, version):
                    wrong = reconcile(deployment, partial(_champion, settings, model))
                if remove_abandoned_candidate(deployment):
                    done.repaired.append(f"{model}: a candidate was left behind")
            except BusyError:
                continue  # what is being published is looked at next time
            except DmlsError as error:
                log.warning("%s cannot be mended: %s", model, error)
                done.failed.append(f"{model}: {error}")
                continue
            if wrong:
                log.warning("%s did not serve its champion and does again: %s", model, wrong)
                done.repaired.append(f"{model}: {wrong}")
                team, _, job = model.partition(".")
                count(store, team, job, "repairs")
    return done


def _champion(settings: AirflowSettings, model: str) -> int | None:
    from dmls_core.tracking import champions

    return champions(settings.mlflow_uri).get(model)
