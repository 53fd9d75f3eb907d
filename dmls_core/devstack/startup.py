"""The steps that start the services: in the order of their dependencies, in parallel where possible."""

from __future__ import annotations

import graphlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from dmls_core.devstack import airflow, mlflow, postgres, seaweedfs, triton
from dmls_core.devstack.airflow import Runner
from dmls_core.devstack.context import Context
from dmls_core.devstack.private_files import make_private_folder, write_private_json
from dmls_core.devstack.processes import SERVICE_VARIABLE
from dmls_core.devstack.supervisor import (
    RUNNING_STATES,
    START_RETRIES,
    Service,
    Stop,
    Supervisor,
    last_lines,
    wait_until,
)
from dmls_core.errors import PlatformError

Progress = Callable[[str, str, float], None]
"""Called for each step with its name, ``starting``, ``ready`` or ``failed``, and its seconds so far."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; the event that its action gets is set when another step has failed."""

    name: str
    action: Callable[[threading.Event], None]
    after: tuple[str, ...] = ()


def run_steps(steps: Sequence[Step], progress: Progress) -> None:
    """Run all steps; if one fails, stop the others and raise ``PlatformError``."""
    by_name = {step.name: step for step in steps}
    order = graphlib.TopologicalSorter({step.name: step.after for step in steps})
    order.prepare()
    given_up = threading.Event()
    running: dict[Future[None], str] = {}
    first: BaseException | None = None
    with ThreadPoolExecutor(len(steps)) as pool:
        try:
            while running or (order.is_active() and first is None):
                if first is None:
                    for name in order.get_ready():
                        running[pool.submit(_run, by_name[name], given_up, progress)] = name
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    name = running.pop(future)
                    error = future.exception()
                    if error is None:
                        order.done(name)
                    elif first is None:
                        first = error
                        given_up.set()
        finally:
            # Also on Ctrl-C: the pool waits for its threads.
            given_up.set()
    if isinstance(first, PlatformError):
        raise first
    if first is not None:
        raise PlatformError(f"a step failed unexpectedly: {first!r}") from first


def _run(step: Step, given_up: threading.Event, progress: Progress) -> None:
    begun = time.monotonic()
    progress(step.name, "starting", 0.0)
    try:
        step.action(given_up)
    except BaseException:
        progress(step.name, "failed", time.monotonic() - begun)
        raise
    progress(step.name, "ready", time.monotonic() - begun)


BASE = {"s3": Stop("TERM", 2), "postgres": Stop("INT", 20)}
"""Services that the others use, and how each is stopped.

SeaweedFS waits 15 s for streams between its parts, so it is killed, which its data survives; at TERM,
PostgreSQL would wait for its clients.
"""

AIRFLOW = (
    "airflow-api-server",
    "airflow-scheduler",
    "airflow-triggerer",
    "airflow-dag-processor",
)

USERS = dict.fromkeys(("s3-guard", "mlflow", "triton", *AIRFLOW), Stop("TERM", 10))
"""Services that use them. The successor of a killed triggerer or scheduler takes up its work."""

PORTS = {
    "s3": seaweedfs.PORTS,
    "postgres": postgres.PORTS,
    "mlflow": mlflow.PORTS,
    "airflow-api-server": airflow.PORTS,
    "triton": triton.PORTS,
}

STANDARD_PORTS = {
    "airflow": 8080,
    "mlflow": 5000,
    "s3": 8333,
    "triton_http": 8000,
    "triton_grpc": 8001,
    "triton_metrics": 8002,
}
"""Ports that people expect, used by the first platform of a machine where they are free."""


@dataclass(frozen=True, slots=True)
class Startup:
    """Start one platform; steps skip work that is done already."""

    context: Context
    supervisor: Supervisor
    runner: Runner
    environment: dict[str, str]

    def steps(self) -> list[Step]:
        """Return the steps with their dependencies."""
        components = {s.name: s for s in airflow.airflow_services(self.context, self.runner)}
        needs = {"airflow-dag-processor": ("airflow database", "s3")}
        return [
            Step("s3", self._s3),
            Step("s3-guard", self._serving(seaweedfs.guard_service(self.context)), ("s3",)),
            Step("postgres", self._postgres),
            Step("triton", self._triton),
            Step("mlflow", self._mlflow, ("postgres",)),
            Step("airflow database", self._migrate, ("postgres",)),
            *(
                Step(name, self._serving(components[name]), needs.get(name, ("airflow database",)))
                for name in AIRFLOW
            ),
            Step("airflow pools", self._pools, ("airflow-api-server",)),
        ]

    def _s3(self, given_up: threading.Event) -> None:
        self._serve(seaweedfs.seaweedfs_service(self.context), given_up)
        seaweedfs.make_bucket(self.context)

    def _postgres(self, given_up: threading.Event) -> None:
        postgres.initialize(self.context, self.environment, self.supervisor.log_of("postgres"))
        self._serve(postgres.postgres_service(self.context), given_up)
        postgres.make_databases(self.context)

    def _mlflow(self, given_up: threading.Event) -> None:
        mlflow.upgrade(self.context, self.environment, self.supervisor.log_of("mlflow"))
        self._serve(mlflow.mlflow_service(self.context), given_up)
        mlflow.note_upgraded(self.context)

    def _migrate(self, _: threading.Event) -> None:
        log = self.supervisor.log_of("airflow-database")
        airflow.migrate(self.context, self.runner, self.environment, log)

    def _pools(self, _: threading.Event) -> None:
        airflow.make_pools(self.context)

    def _triton(self, given_up: threading.Event) -> None:
        server = triton.find_server(self.context.state, self.environment, self.supervisor.log_of("triton"))
        self._serve(triton.triton_service(self.context, server), given_up)

    def _serving(self, service: Service) -> Callable[[threading.Event], None]:
        return lambda given_up: self._serve(service, given_up)

    def _serve(self, service: Service, given_up: threading.Event) -> None:
        """Start the service, or restart it if its definition changed, and wait until it responds."""
        name = service.name
        changed = write_private_json(
            make_private_folder(self.context.state / "services") / f"{name}.json",
            {
                "command": service.command,
                "environment": {**service.environment, SERVICE_VARIABLE: name},
                "folder": str(service.folder),
                "stale": service.stale,
                "late_arguments": service.late_arguments,
            },
        )
        if changed and self.supervisor.info(name)["statename"] in RUNNING_STATES:
            self.supervisor.stop_program(name)
        self.supervisor.start_program(name)

        log, starts = self.supervisor.log_of(name), set[int]()

        def answers() -> bool:
            if given_up.is_set():
                raise PlatformError("given up, since something else failed")
            info = self.supervisor.info(name)
            starts.add(info["start"])
            # supervisord itself counts only the starts that fail within a second.
            if info["statename"] not in RUNNING_STATES or len(starts) > START_RETRIES:
                raise PlatformError("it ended again and again")
            return info["statename"] == "RUNNING" and service.ready(float(info["start"]))

        try:
            # On a busy machine, a service that still writes will respond.
            wait_until(answers, service.seconds, lambda: log.stat().st_size if log.exists() else 0)
        except PlatformError as error:
            raise PlatformError(
                f"{name} did not start: {error}\n{last_lines(log)}\nsee {log}; `dmls up` goes on from here"
            ) from error
