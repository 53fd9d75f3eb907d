"""How the embedded platform is, and the file that tells other commands where its services are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from dmls_core.devstack.airflow import ADMIN
from dmls_core.devstack.context import Context
from dmls_core.devstack.environment import LOOPBACK
from dmls_core.devstack.files import read_json, write_private_json
from dmls_core.settings import STATE_FILE, Settings


@dataclass(frozen=True, slots=True)
class ServiceState:
    """How a service is: ``state`` is supervisord's word, ``RUNNING`` when all is well, or ``DOWN``."""

    name: str
    state: str
    url: str
    log: str
    pid: int


@dataclass(frozen=True, slots=True)
class State:
    """How the platform is; ``settings`` is ``None`` when it is down."""

    folder: Path
    services: tuple[ServiceState, ...]
    settings: Settings | None

    @property
    def up(self) -> bool:
        """Whether every service runs."""
        return bool(self.services) and all(service.state == "RUNNING" for service in self.services)


def service_urls(context: Context) -> dict[str, str]:
    """Return where each service that has an address is found."""
    return {
        "s3": context.url("s3"),
        "postgres": f"postgresql://{context.address('postgres')}",
        "mlflow": context.url("mlflow"),
        "airflow-api-server": context.url("airflow"),
        "triton": context.url("triton_http"),
    }


def platform_settings(context: Context) -> Settings:
    """Return the addresses of this platform."""
    return Settings(
        root=context.root,
        mlflow_uri=context.url("mlflow"),
        triton_http=context.address("triton_http"),
        triton_grpc=context.address("triton_grpc"),
        triton_repository=str(context.model_repository),
        triton_key=context.secret("triton_key"),
        airflow_url=context.url("airflow"),
        airflow_username=ADMIN,
        airflow_password=context.secret("airflow_password"),
    )


def write_state(context: Context, services: tuple[ServiceState, ...], *, again: bool = False) -> None:
    """Write ``platform.json``, mode 600, which ``load_settings`` reads.

    Args:
        context: the platform.
        services: its services.
        again: the platform is up already: when it was started stays as it is written.
    """
    file = context.state / STATE_FILE
    known = (read_json(file) or {}) if again else {}
    write_private_json(
        file,
        {
            "schema": 1,
            "platform_id": context.identity.id,
            "started": known.get("started") or datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": asdict(platform_settings(context)),
            "environment": {**context.s3_environment(), "NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK},
            "services": {s.name: {"url": s.url, "log": s.log} for s in services},
        },
    )
