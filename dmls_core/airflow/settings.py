"""DMLS's settings in Airflow, the ``kwargs`` of its one bundle entry, and the stores that they name."""

from __future__ import annotations

import difflib
import inspect
import json
import os
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from airflow.dag_processing.bundles.base import BaseDagBundle
from airflow.sdk.configuration import conf
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from dmls_core import extensions
from dmls_core.errors import PlatformError
from dmls_core.settings import ENVIRONMENT, ProcessSettings
from dmls_core.store import Store, open_store, store_class

if TYPE_CHECKING:
    from dmls_core.serving import Repository


BUNDLE_CLASSPATH = "dmls_core.airflow.bundle.DmlsBundle"

_AIRFLOW_KWARGS = inspect.signature(BaseDagBundle).parameters.keys()
"""The arguments of Airflow's base class."""

_REMOVED = {
    "keep_runs_days": "remove it: `airflow db clean` deletes old runs, as docs/how-to/operate.md shows",
}
"""Settings of earlier releases, and what to do instead."""

_PRICE = r"^(\d+(\.\d+)? [A-Z]{3})?$"

DagAction = Literal["can_read", "can_edit", "can_delete"]
"""What a role may do with a DAG, in the words of Airflow's ``access_control``."""

TeamRoles = dict[str, dict[str, list[DagAction]]]
"""Team -> role -> what it may do with the DAGs of the team."""


class AirflowSettings(BaseModel):
    """What the platform team writes into the ``kwargs`` of the bundle entry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str = Field(min_length=1, description="`s3://bucket/prefix`, or a folder that all workers share.")
    aws_conn_id: str = Field(
        "aws_default", description="Airflow connection with the credentials of `root`, if it is in S3."
    )
    runner: str = Field(
        "docker",
        description="What starts trainers: `docker`, `kubernetes`, `process`, or a name that another package "
        "registers.",
    )
    mlflow_uri: str = Field(
        "", description="MLflow server as the workers reach it; empty: nothing is recorded."
    )
    mlflow_public_uri: str = Field("", description="MLflow server as a browser reaches it; empty: the same.")
    triton_http: str = Field(
        "",
        description="`host:port` of Triton's HTTP endpoint as the workers reach it, or `https://host:port` "
        "behind TLS; of all replicas, separated by commas. `dns:NAME:PORT` stands for all IPv4 addresses of "
        "a name. `copies=2` before them places each model on two of the servers.",
    )
    triton_grpc: str = Field(
        "",
        description="The same of Triton's gRPC endpoint, with `grpcs://` behind TLS; replicas in the same "
        "order.",
    )
    triton_repository: str = Field(
        "", description="Triton's model repository as the workers see it: a folder, or a URL in S3."
    )
    inference_log: str = Field(
        "",
        description="Folder in which Triton logs sampled requests, as the workers see it; empty: the monitor "
        "does not collect them.",
    )
    keep_versions: int = Field(3, ge=1, description="Versions of a model that stay in the repository.")
    image: str = Field(
        "dmls-trainer:cpu", description="Trainer image of the runners `docker` and `kubernetes`."
    )
    docker_url: str = Field("", description="Docker engine; empty: `DOCKER_HOST` or the local socket.")
    docker_network: str = Field("bridge", description="Network mode of trainer containers.")
    kubernetes_conn_id: str = Field(
        "kubernetes_default",
        description="Airflow connection to the cluster of the runner `kubernetes`; without one, the cluster "
        "that Airflow runs in.",
    )
    kubernetes_namespace: str = Field("default", description="Namespace of the trainers' pods.")
    kubernetes_pod: dict[str, Any] = Field(
        {},
        description="Template of the trainers' pods, a partial manifest: node selector, tolerations, image "
        "pull secrets, labels for Kueue, claims of devices.",
    )
    kubernetes_gpu_resource: str = Field(
        "nvidia.com/gpu",
        description="What a pod of the `gpu` engine requests 1 of; empty: the template claims a GPU.",
    )
    trainer_role: str = Field(
        "",
        description="ARN of a role that the credentials of `root` may assume through STS: each trainer then "
        "gets credentials of its own that reach its run and its job's data only. They expire after 12 hours, "
        "or one, if the role allows no more. Empty: trainers get the platform's credentials.",
    )
    trainer_python: str = Field(
        "", description="Python interpreter of the process runner; empty: the worker's own."
    )
    gpus: int = Field(
        0,
        ge=0,
        description="GPUs that the runner offers, per Docker engine or cluster; with 0, `auto` means `cpu`, "
        "and admission rejects `gpu`.",
    )
    trainers_per_gpu: int = Field(
        1,
        ge=1,
        le=4,
        description="Trainers that may share a GPU, each with an equal share of its memory; one that needs "
        "more gets a GPU of its own.",
    )
    memory: str = Field("4g", description="Memory limit of a trainer, such as `4g`; a spec may override it.")
    cpus: float = Field(
        0.0, ge=0, description="CPU limit of a trainer of the runners `docker` and `kubernetes`; 0: no limit."
    )
    cache: str = Field(
        "",
        description="Size of each team's cache of matrices on a machine, of the runners `docker` and "
        "`process`, such as `20g`: further trainers on the same data need not read it. Empty: no cache.",
    )
    hourly_price: str = Field(
        "",
        pattern=_PRICE,
        description="Price of a trainer per hour, such as `0.40 EUR`; estimates of runs then show the cost.",
    )
    gpu_hourly_price: str = Field(
        "",
        pattern=_PRICE,
        description="Price per hour of a trainer with a GPU, in the same currency. Empty: `hourly_price`.",
    )
    poll_seconds: float = Field(3.0, gt=0, description="Seconds between two listings of `incoming/`.")
    shards: int = Field(256, ge=1, description="Number of generated DAG files.")
    connections: dict[str, list[str]] = Field(
        {},
        description="Airflow connections to databases and object stores that jobs may read as their source, "
        "and whose tables may be scored, and to services that jobs may notify, each with the teams that may "
        'use it, such as `{"warehouse": ["shop"], "dmls_email_default": ["*"]}`; `"*"` means all teams.',
    )
    team: str = Field(
        "",
        description="The only team whose jobs this bundle entry has, for Airflow's `multi_team`: the entry's "
        "`team_name` then decides who may use their DAGs. The entry without `team` has the jobs of all other "
        "teams, and the settings of all.",
    )
    access_control: TeamRoles = Field(
        {},
        description="Roles of Airflow's FAB auth manager that get a team's jobs, each with Airflow's actions "
        'on their DAGs, such as `{"shop": {"shop": ["can_read", "can_edit", "can_delete"]}}`; they are the '
        "`access_control` of the DAGs, and apply to jobs that have no DAG yet, too.",
    )
    approvers: dict[str, list[str]] = Field(
        {},
        description="Airflow users who alone approve, roll back and undeploy a team's models, by the auth "
        'manager\'s IDs (names with the simple one, numbers with FAB), such as `{"shop": ["ada"]}`. Models '
        "of such a team wait for an approval in the mode `auto`, too.",
    )
    team_shares: dict[str, PositiveFloat] = Field(
        {},
        description='Shares of teams in the queue for trainers, such as `{"shop": 2}`; others have 1.',
    )
    requests_per_minute: dict[str, PositiveInt] = Field(
        {},
        description="Quotas of teams for `POST /predictions/...`, such as "
        '`{"shop": 600, "*": 60}`; `"*"` means each other team. Each process of the API server counts by '
        "itself, so a team gets its quota once for each of them.",
    )
    monitor_cron: str = Field(
        "@hourly", description="When the monitor runs, in UTC; empty: only when a user triggers it."
    )

    @field_validator("runner")
    @classmethod
    def _installed(cls, name: str) -> str:
        names = extensions.names("dmls.runners")
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"installed: {', '.join(names)}"
            raise ValueError(f"no installed package registers this runner; {hint}")
        return name

    @field_validator("gpu_hourly_price")
    @classmethod
    def _one_currency(cls, price: str, others: ValidationInfo) -> str:
        currency = others.data.get("hourly_price", "")[-3:]
        if price and currency and price[-3:] != currency:
            raise ValueError(f"must be in the currency of hourly_price, {currency}")
        return price

    @property
    def platform(self) -> str:
        """The platform's name among those that share a machine, Docker engine or cluster.

        It is the root, and an embedded platform's id: the roots of those all read alike.
        """
        embedded = ProcessSettings.from_environment().platform_id
        return f"{self.root}#{embedded}" if embedded else self.root

    @staticmethod
    def load_key() -> str:
        """Return the key that Triton requires to load models; it is a secret, so not in the bundle entry."""
        return os.environ.get(ENVIRONMENT["triton_key"], "")


def split_kwargs(kwargs: dict[str, Any]) -> tuple[AirflowSettings, dict[str, Any]]:
    """Split a bundle entry's ``kwargs`` into DMLS's settings and the arguments of Airflow's base class."""
    settings = {name: value for name, value in kwargs.items() if name in AirflowSettings.model_fields}
    others = {name: value for name, value in kwargs.items() if name not in settings}
    wrong = [f"kwargs.{name}: {_unknown(name)}" for name in others if name not in _AIRFLOW_KWARGS]
    try:
        parsed = AirflowSettings(**settings)
    except ValidationError as error:
        wrong += [
            f"kwargs.{issue['loc'][0]}: {issue['msg'].removeprefix('Value error, ')}"
            + (f" (found {issue['input']!r})" if issue["type"] != "missing" else "")
            for issue in error.errors()
        ]
    if wrong:
        raise PlatformError(f"bundle entry {BUNDLE_CLASSPATH}: {'; '.join(wrong)}")
    return parsed, others


def _unknown(name: str) -> str:
    if name in _REMOVED:
        return f"this setting was removed; {_REMOVED[name]}"
    close = difflib.get_close_matches(name, [*AirflowSettings.model_fields, *_AIRFLOW_KWARGS], n=1)
    hint = f"did you mean {close[0]!r}?" if close else "docs/reference/settings.md lists the settings"
    return f"there is no such setting; {hint}"


def bundle_entries() -> list[dict[str, Any]]:
    """Return DMLS's entries in ``dag_bundle_config_list``, those of single teams last."""
    entries = json.loads(conf.get("dag_processor", "dag_bundle_config_list"))
    dmls_entries = [entry for entry in entries if entry.get("classpath") == BUNDLE_CLASSPATH]
    return sorted(dmls_entries, key=lambda entry: bool(entry.get("kwargs", {}).get("team")))


@cache
def team_entries() -> dict[str, str | None]:
    """Return Airflow's ``team_name`` of the teams that have a bundle entry of their own."""
    names = {entry.get("kwargs", {}).get("team"): entry.get("team_name") for entry in bundle_entries()}
    return {team: name for team, name in names.items() if team}


@cache
def airflow_settings() -> AirflowSettings:
    """Read the settings, the same in all Airflow processes; raise ``PlatformError`` if missing or wrong."""
    entries = bundle_entries()
    if entries and not entries[0].get("kwargs", {}).get("team"):
        return split_kwargs(entries[0].get("kwargs", {}))[0]
    raise PlatformError(
        f"[dag_processor] dag_bundle_config_list has no entry with classpath {BUNDLE_CLASSPATH} and without "
        "`team`: add one as docs/how-to/install.md shows"
    )


def uses_fab() -> bool:
    """Return whether Airflow's auth manager is FAB, or derived from it, as Airflow itself finds out."""
    return "FabAuthManager" in conf.get("core", "auth_manager")


def airflow_url() -> str:
    """Return the URL of Airflow as its users reach it, or an empty string if it is not configured."""
    url: str = conf.get("api", "base_url", fallback="")
    return url.rstrip("/")


def open_root(settings: AirflowSettings, *, interactive: bool = False) -> Store:
    """Open the store at ``settings.root``; if ``interactive``, fail within seconds if the service is down."""
    return open_with_connection(settings.root, settings.aws_conn_id, interactive=interactive)


def open_repository(settings: AirflowSettings) -> Repository:
    """Open Triton's model repository with the same credentials as the store."""
    from dmls_core.serving import Repository

    url = settings.triton_repository
    return Repository(url, store=open_with_connection(url, settings.aws_conn_id) if url else None)


def open_with_connection(url: str, connection_id: str, *, interactive: bool = False) -> Store:
    """Open the store at ``url`` with the Airflow hook that its class names, if it names one."""
    path = store_class(url).hook_class
    hook = pkgutil.resolve_name(path)(connection_id) if path else None
    return open_store(url, hook=hook, interactive=interactive)
