"""What the monitor mends: served versions that are not the champion's, trainers whose task is gone."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dmls_core.airflow.connections import open_repository
from dmls_core.airflow.runners.command import ROOT_LABEL, RUN_MARK
from dmls_core.airflow.settings import AirflowSettings
from dmls_core.errors import DmlsError
from dmls_core.monitoring.counters import count
from dmls_core.store import Store

if TYPE_CHECKING:
    import psutil

log = logging.getLogger(__name__)

YOUNG_SECONDS = 60.0
"""A trainer that is younger is left alone: Airflow may not say yet that its task runs."""

END_SECONDS = 5.0

Lives = Callable[[str, str], bool]
"""(DAG, run) -> whether Airflow says that the run's search runs."""


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
    from dmls_core.serving import triton_servers
    from dmls_core.serving.locks import BusyError
    from dmls_core.serving.reconcile import disagreement, drop_abandoned, repair
    from dmls_core.tracking import champions

    done = Repaired()
    repository = open_repository(settings)
    with triton_servers(settings.triton_http, settings.triton_grpc, key=settings.load_key()) as servers:
        for model, version in champions(settings.mlflow_uri).items():
            try:
                wrong = ""
                if version is not None and disagreement(repository, servers, model, version):
                    wrong = repair(repository, servers, model, partial(_champion, settings, model))
                if drop_abandoned(repository, servers, model):
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


def reap_containers(settings: AirflowSettings, lives: Lives) -> list[str]:
    """Remove the containers of this DMLS whose task does not run; return their ids.

    Raises:
        docker.errors.DockerException: the engine does not answer.
    """
    import docker
    from docker.errors import NotFound

    address = settings.docker_url or os.environ.get("DOCKER_HOST") or "unix://var/run/docker.sock"
    removed = []
    with docker.APIClient(base_url=address, version="auto") as engine:
        for found in engine.containers(all=True, filters={"label": [f"{ROOT_LABEL}={settings.root}"]}):
            labels = found["Labels"]
            if time.time() - found["Created"] < YOUNG_SECONDS or lives(
                labels["dmls.dag"], labels["dmls.run"]
            ):
                continue
            log.warning("removing the container %s of %s, whose task is gone", found["Id"][:12], labels)
            with suppress(NotFound):
                engine.remove_container(found["Id"], force=True)
            removed.append(found["Id"][:12])
    return removed


def reap_processes(settings: AirflowSettings, lives: Lives) -> list[int]:
    """End the trainers' processes on this machine whose task does not run; return their ids.

    A trainer dies with its task. What it started itself may outlive it.
    """
    import psutil

    orphans = []
    for process, dag, run in _marked_processes(settings.root):
        with suppress(psutil.Error):
            if time.time() - process.create_time() >= YOUNG_SECONDS and not lives(dag, run):
                log.warning("ending process %s of %s %s, whose task is gone", process.pid, dag, run)
                process.terminate()
                orphans.append(process)
    for process in psutil.wait_procs(orphans, timeout=END_SECONDS)[1]:
        with suppress(psutil.Error):
            process.kill()
    return [process.pid for process in orphans]


def _marked_processes(root: str) -> Iterator[tuple[psutil.Process, str, str]]:
    """Yield this machine's processes of trainers, with DAG and run."""
    import psutil

    for process in psutil.process_iter():
        try:
            mark = process.environ().get(RUN_MARK)
        except psutil.Error:
            continue
        if mark and (of := json.loads(mark))["root"] == root:
            yield process, of["dag"], of["run"]
