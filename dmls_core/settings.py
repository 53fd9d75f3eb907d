"""Every environment variable that DMLS reads, with its type, default and description.

``docs/settings_reference.py`` writes the reference page from these classes.

They are dataclasses; pydantic-settings is imported only to validate variables that are set and are not text,
because its import takes as much CPU as the whole command line (0.1 s).
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

from dmls_core.errors import PlatformError


def _variable(default: Any, description: str, *, name: str = "") -> Any:  # noqa: ANN401 - as field() does
    """Declare a variable; ``name`` replaces the default name, the group's prefix and the field's name."""
    return field(default=default, metadata={"description": description, "name": name})


@dataclass(frozen=True, slots=True)
class Variables:
    """A group of environment variables, one for each field. Integers are positive, or 0 by default."""

    prefix: ClassVar[str] = "DMLS_"

    @classmethod
    def variables(cls) -> dict[str, str]:
        """Return the environment variable of each field."""
        return {f.name: f.metadata["name"] or cls.prefix + f.name.upper() for f in fields(cls)}

    @classmethod
    def variable(cls, name: str) -> str:
        """Return the environment variable of a field."""
        return cls.variables()[name]

    @classmethod
    def from_environment(cls) -> Self:
        """Return the values of the variables; an empty one counts as not set.

        Raises:
            PlatformError: a value has the wrong type.
        """
        names = cls.variables()
        texts = {name: text for name, variable in names.items() if (text := os.environ.get(variable))}
        types = get_type_hints(cls) if texts else {}
        if all(types[name] is str for name in texts):
            return cls(**texts)
        group: Any = cls
        return cls(**_validated(group, tuple(texts.items())))


@dataclass(frozen=True, slots=True)
class Settings(Variables):
    """Addresses of the services."""

    root: str = _variable("", "URL of the store, such as `s3://bucket/prefix`, or a folder")
    mlflow_uri: str = _variable("", "URL of the MLflow server", name="MLFLOW_TRACKING_URI")
    triton_http: str = _variable(
        "",
        "`host:port` of Triton's HTTP endpoint, or `https://host:port` behind TLS; commas separate the "
        "addresses of replicas; `dns:NAME:PORT` stands for all IPv4 addresses of a name; `copies=2` before "
        "them places each model on two of the servers",
    )
    triton_grpc: str = _variable(
        "", "the same of Triton's gRPC endpoint, with `grpcs://`; replicas in the same order"
    )
    triton_repository: str = _variable("", "Triton's model repository: a folder or `s3://bucket/prefix`")
    triton_key: str = _variable(
        "", "key that Triton requires for loading models; a secret. Without one, any client may load models"
    )
    airflow_url: str = _variable("", "base URL of Airflow's API server")
    airflow_username: str = _variable("", "user of Airflow's REST API")
    airflow_password: str = _variable("", "password of that user; a secret")

    def require(self, name: str) -> str:
        """Return the setting ``name``; if it is empty, raise ``PlatformError`` with its variable."""
        value: str = getattr(self, name)
        if not value:
            raise PlatformError(no_platform(self.variable(name)))
        return value


@dataclass(frozen=True, slots=True)
class ProcessSettings(Variables):
    """Variables of single programs."""

    home: str = _variable(
        "",
        "state folder of the embedded platform; by default the nearest `.dmls`: here, in a folder above, or "
        "next to the virtual environment",
    )
    debug: str = _variable("", "`1`: the command line shows stack traces")
    team: str = _variable("", "team of `dmls submit`")
    triton_server: str = _variable(
        "",
        "path of a `tritonserver` with NVIDIA's FIL backend, for the embedded platform",
    )
    triton_options: str = _variable(
        "", "further options of the embedded platform's Triton, separated by spaces as in a shell"
    )
    inference_log: str = _variable(
        "", "set for Triton: folder for sampled requests; without it, Triton logs no requests"
    )
    metrics_token: str = _variable(
        "",
        "set for Airflow's API server: bearer token of the metrics endpoint; a secret. Without it, the "
        "endpoint is closed",
    )
    cors_origins: str = _variable(
        "",
        "set for Airflow's API server: origins whose pages may predict with an API key, separated by commas, "
        "such as `https://shop.example`. Without it, no page of another origin may",
    )
    connections: str = _variable(
        "",
        "set for the embedded platform before `dmls up`: `connections` of the bundle entry, the Airflow "
        'connections that jobs may use, each with its teams, as JSON such as `{"warehouse": ["shop"]}`',
    )
    api_key: str = _variable(
        "",
        "set for a client of the REST API: API key with which `dmls_core.client` and the snippets of a job's "
        "page predict; a secret",
    )
    signing_key: str = _variable(
        "",
        "private key (ECDSA, PEM) with which trainers and deployments sign models; a secret. Set it for "
        "Airflow's workers, and where `dmls canary` runs",
    )
    signers: str = _variable(
        "",
        "public keys of `DMLS_SIGNING_KEY`, now and earlier, PEM one after the other. With them, only "
        "signed models are registered, deployed, rolled back to and repaired",
    )
    study_url: str = _variable(
        "",
        "PostgreSQL database with the study that trainers share (`dmls train --worker`); a secret. The "
        "runners set it",
    )
    dask_scheduler: str = _variable(
        "",
        "set for Airflow's workers: `tls://host:port` of a Dask scheduler, whose workers are the nodes of "
        "`[resources] nodes`. Certificates are Dask's own settings, such as "
        "`DASK_DISTRIBUTED__COMM__TLS__CA_FILE`; trainers get all `DASK_` variables",
    )
    node_trainers: str = _variable(
        "",
        "key of a run's attempt whose nodes are trainers in containers or pods. The runners set it for all "
        "of them",
    )
    node_host: str = _variable(
        "",
        "address by which the nodes of a run reach this trainer; by default that of its default route. The "
        "runner `kubernetes` sets the pod's",
    )
    platform_id: str = _variable("", "identifies the processes of an embedded platform, which sets it")
    service: str = _variable("", "name of a service of the embedded platform, which sets it")
    trainer_labels: str = _variable(
        "",
        "labels of a trainer's process, JSON, by which the monitor finds orphans. The process runner sets it",
    )


@dataclass(frozen=True, slots=True)
class SpecLimits(Variables):
    """Limits of `spec.toml`."""

    prefix: ClassVar[str] = "DMLS_SPEC_"

    bytes: int = _variable(256 * 1024, "size of `spec.toml` in bytes")
    depth: int = _variable(8, "nesting of tables, arrays and dotted keys")
    items: int = _variable(12_000, "total number of keys, tables and list elements")
    text: int = _variable(1_000, "characters of a key or string")
    columns: int = _variable(10_000, "names in a list of columns")
    values: int = _variable(1_000, "values of a hyperparameter")
    trials: int = _variable(10_000, "`n_trials`")
    range_width: int = _variable(1_000_000, "`max - min` of an integer range")
    grid: int = _variable(100_000, "points of a grid search")
    models: int = _variable(8, "models of a spec")
    nodes: int = _variable(16, "`nodes` of `[resources]`")
    tags: int = _variable(64, "entries of `[tags]`")
    issues: int = _variable(100, "errors reported at once; the others are counted")


@dataclass(frozen=True, slots=True)
class IntakeLimits(Variables):
    """Limits of submitted data files."""

    prefix: ClassVar[str] = "DMLS_INTAKE_"

    data_bytes: int = _variable(100 << 30, "total size of a submission's data files in bytes")
    head_bytes: int = _variable(1 << 20, "bytes of each data file that admission reads")
    whole_bytes: int = _variable(
        32 << 20, "total size in bytes up to which admission reads all rows; of more data it reads samples"
    )
    columns: int = _variable(10_000, "columns of a data file")
    source_seconds: int = _variable(
        3_600, "seconds that a database may take to return the rows of a source or of a table to score"
    )


@dataclass(frozen=True, slots=True)
class DataLimits(Variables):
    """Limits of training data; the runners pass them on to trainers."""

    prefix: ClassVar[str] = "DMLS_DATA_"

    rows: int = _variable(200_000_000, "total number of rows")
    columns: int = _variable(10_000, "columns of a file, including unused ones")
    cell: int = _variable(4_096, "bytes of a text cell")
    categories: int = _variable(10_000, "distinct values of a feature that `[columns] categorical` names")
    found_categories: int = _variable(255, "distinct values up to which another text feature is categorical")
    classes: int = _variable(1_000, "distinct labels of a classifier's target")
    issues: int = _variable(50, "errors reported at once")


@dataclass(frozen=True, slots=True)
class ServingLimits(Variables):
    """Limits of models in Triton."""

    prefix: ClassVar[str] = "DMLS_SERVING_"

    checkpoint_bytes: int = _variable(1 << 30, "size in bytes of the largest checkpoint that is deployed")
    shared_bytes: int = _variable(
        0,
        "size in bytes of the largest checkpoint that the process of small models serves, up to 64 MB; "
        "without it, every model has processes of its own. Set it for everything that deploys models",
    )


@dataclass(frozen=True, slots=True)
class CacheSettings(Variables):
    """The cache of matrices on a trainer's machine; the runners set it as their setting `cache` says."""

    prefix: ClassVar[str] = "DMLS_CACHE_"

    folder: str = _variable("", "folder of the cache; without one, every trainer reads its data")
    bytes: int = _variable(20 << 30, "size of each team's entries, of which the oldest are deleted")


GROUPS: tuple[type[Variables], ...] = (
    Settings,
    ProcessSettings,
    SpecLimits,
    IntakeLimits,
    DataLimits,
    CacheSettings,
    ServingLimits,
)

ENVIRONMENT: dict[str, str] = Settings.variables()
"""Field of ``Settings`` -> its environment variable."""

STUDY_VARIABLE = ProcessSettings.variable("study_url")
INFERENCE_LOG = ProcessSettings.variable("inference_log")
METRICS_TOKEN = ProcessSettings.variable("metrics_token")
CONNECTIONS = ProcessSettings.variable("connections")
CORS_ORIGINS = ProcessSettings.variable("cors_origins")
API_KEY = ProcessSettings.variable("api_key")
SIGNING_KEY = ProcessSettings.variable("signing_key")
SIGNERS = ProcessSettings.variable("signers")
SHARED_BYTES = ServingLimits.variable("shared_bytes")
CACHE_FOLDER = CacheSettings.variable("folder")
DASK_SCHEDULER = ProcessSettings.variable("dask_scheduler")
NODE_TRAINERS = ProcessSettings.variable("node_trainers")
NODE_HOST = ProcessSettings.variable("node_host")

DEFAULT_TEAM = "default"
"""Team of a job if its user names none, in the form and on the command line."""

TRITON_KEY_HEADER = "dmls-key"
"""HTTP header with ``triton_key``; over gRPC, Triton prefixes the name with ``triton-grpc-protocol-``."""

_STATE_FOLDER = ".dmls"
"""Folder with the state of the embedded platform."""

STATE_FILE = "platform.json"
"""Written by the embedded platform, mode 600: ``{"settings": {...}, "environment": {...}, ...}``."""


def state_folder() -> Path:
    """Return the state folder of the embedded platform; it may not exist yet.

    ``DMLS_HOME`` if set, else the nearest ``.dmls`` in or above the working directory, else the one next to
    the virtual environment of this program, so that an activated environment works in every folder, else
    ``./.dmls``. Folders of other users are passed over.

    Raises:
        PlatformError: ``DMLS_HOME`` is a file.
    """
    if home := ProcessSettings.from_environment().home:
        folder = Path(home).absolute()
        # Those of a Path fail for a name that is too long.
        if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112
            raise PlatformError(f"{ProcessSettings.variable('home')} must be a folder, not the file {folder}")
        return folder
    here = Path.cwd()
    for folder in (here, *here.parents, Path(sys.prefix).parent):
        candidate = folder / _STATE_FOLDER
        if candidate.is_dir() and os.access(candidate, os.X_OK):
            return candidate
    return here / _STATE_FOLDER


def no_platform(variable: str = "") -> str:
    """Return a message that says where no platform was found, and what to do.

    ``variable`` is the one with the address of a platform that is not embedded.
    """
    home = ProcessSettings.variable("home")
    other = f", or {variable} to the address of another platform" if variable else ""
    return (
        f"no embedded platform runs from {state_folder()}: start one with `dmls up`, or set {home} to the "
        f"folder .dmls of one that runs{other}"
    )


def load_settings() -> Settings:
    """Return the settings; a variable of the environment wins over the state of the embedded platform.

    The platform's credentials for client libraries are added to the environment if not set there.
    """
    state: dict[str, dict[str, str]] = {}
    file = state_folder() / STATE_FILE
    if os.access(file, os.R_OK):  # Another user's is none.
        state = json.loads(file.read_text())
    stored = state.get("settings", {})
    settings = Settings.from_environment()
    # The platform's login must not reach another MLflow server, nor its keys decide on another repository.
    elsewhere = {
        prefix
        for prefix, setting in (
            ("MLFLOW_TRACKING_", "mlflow_uri"),
            (SIGNERS, "triton_repository"),
            (SIGNING_KEY, "triton_repository"),
        )
        if getattr(settings, setting) not in ("", stored.get(setting, ""))
    }
    for name, value in state.get("environment", {}).items():
        if not name.startswith(tuple(elsewhere)):
            os.environ.setdefault(name, value)
    return Settings(**{name: getattr(settings, name) or stored.get(name, "") for name in ENVIRONMENT})


@cache
def _validated(group: type[Variables], _texts: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return the values of a group as pydantic-settings reads them, cached until a text changes."""
    from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, create_model
    from pydantic_settings import BaseSettings, SettingsConfigDict

    class Environment(BaseSettings):
        model_config = SettingsConfigDict(env_ignore_empty=True, case_sensitive=True)

    types = get_type_hints(group)
    names = group.variables()
    declared: Any = {
        f.name: (
            (PositiveInt if f.default else NonNegativeInt) if types[f.name] is int else types[f.name],
            Field(f.default, validation_alias=names[f.name]),
        )
        for f in fields(group)
    }
    try:
        return create_model(group.__name__, __base__=Environment, **declared)().model_dump()
    except ValidationError as error:
        wrong = error.errors()[0]
        variable, text = str(wrong["loc"][0]), str(wrong["input"])[:40]
        number = "an integer from 0 on" if wrong["type"].endswith("than_equal") else "a positive integer"
        raise PlatformError(f"{variable} must be {number}, not {text!r}") from None
