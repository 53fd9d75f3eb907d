"""The steps that start the services, in the order of their dependencies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from dmls_core.devstack import airflow, mlflow, postgres, seaweedfs, triton
from dmls_core.devstack.airflow import Runner
from dmls_core.devstack.context import Context
from dmls_core.devstack.private_files import make_private_folder, write_private_json
from dmls_core.devstack.processes import SERVICE_VARIABLE
from dmls_core.devstack.service import Service, last_lines, wait_until
from dmls_core.devstack.supervisor import RUNNING_STATES, Stop, Supervisor
from dmls_core.devstack.task_graph import Step
from dmls_core.errors import PlatformError

BASE = {"s3": Stop("TERM", 2), "postgres": Stop("INT", 20)}
"""Services that the others use, and how each is stopped.

SeaweedFS waits 15 s for streams between its parts, so it is killed, which its data survives; at TERM,
PostgreSQL would wait for its clients.
"""

AIRFLOW = ("airflow-api-server", "airflow-scheduler", "airflow-triggerer", "airflow-dag-processor")

USERS = dict.fromkeys(("mlflow", "triton", *AIRFLOW), Stop("TERM", 10))
"""Services that use them. The successor of a killed triggerer or scheduler takes up its work."""

PORTS = {
    "s3": seaweedfs.PORTS,
    "postgres": postgres.PORTS,
    "mlflow": mlflow.PORTS,
    "airflow-api-server": airflow.PORTS,
    "triton": triton.PORTS,
}


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
            },
        )
        if changed and self.supervisor.info(name)["statename"] in RUNNING_STATES:
            self.supervisor.stop_program(name)
        self.supervisor.start_program(name)

        def answers() -> bool:
            if given_up.is_set():
                raise PlatformError("given up, since something else failed")
            info = self.supervisor.info(name)
            if info["statename"] not in RUNNING_STATES:
                raise PlatformError("it ended again and again")
            return info["statename"] == "RUNNING" and service.ready(float(info["start"]))

        try:
            wait_until(answers, service.seconds)
        except PlatformError as error:
            log = self.supervisor.log_of(name)
            raise PlatformError(f"{name} did not start: {error}\n{last_lines(log)}\nsee {log}") from error
