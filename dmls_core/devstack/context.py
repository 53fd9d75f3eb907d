"""Identity, folders, ports and credentials of the embedded platform, and the environment of its processes."""

from __future__ import annotations

import base64
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dmls_core.devstack.private_files import make_private_folder, read_json, write_private_json
from dmls_core.devstack.processes import ID_VARIABLE
from dmls_core.errors import PlatformError
from dmls_core.settings import ProcessSettings

IDENTITY_SCHEMA = 2
"""The start that raises it from 1 signs the versions that earlier releases did not sign."""

_LATER = "written_by_a_later_release"
"""A name that stops earlier releases, which ignore the schema: they do not know these signatures."""

_LONGEST_BASE = 40
"""A unix socket's path has at most 107 bytes; names below the runtime folder need the rest."""


@dataclass(slots=True)
class Identity:
    """Content of ``identity.json``.

    Attributes:
        id: the value in the environment of every process of this platform.
        runtime: short folder for unix sockets and temporary files.
    """

    id: str
    runtime: str
    credentials: dict[str, str]
    ports: dict[str, int] = field(default_factory=dict)

    def save(self, file: Path) -> None:
        """Write the file, mode 600."""
        write_private_json(file, {"schema": IDENTITY_SCHEMA, _LATER: True, **asdict(self)})


def load_identity(file: Path) -> Identity:
    """Read the identity, or create one; missing credentials are generated."""
    content = read_json(file)
    if content is None:
        new = secrets.token_hex(8)
        identity = Identity(id=new, runtime=f"{_short_base()}/dmls-{new}", credentials={})
    else:
        schema, _ = content.pop("schema", None), content.pop(_LATER, None)
        if isinstance(schema, int) and schema > IDENTITY_SCHEMA:
            raise PlatformError(
                f"a later release of DMLS wrote {file.parent} (schema {schema}, this one writes "
                f"{IDENTITY_SCHEMA}): install that release again, or restore a backup of the folder"
            )
        try:
            identity = Identity(**content)
        except TypeError as error:
            raise PlatformError(f"{file} is damaged: {error}") from error
    for name, make in _CREDENTIALS.items():
        identity.credentials.setdefault(name, make())
    return identity


def ensure_runtime_folder(identity: Identity) -> None:
    """Set ``identity.runtime`` to a folder of ours with mode 700: the stored one, or else a new one."""
    try:
        if not _is_private(Path(identity.runtime)):
            # Gone, or another user's: its name is known, so anyone may have created it.
            identity.runtime = tempfile.mkdtemp(prefix="dmls-", dir=_short_base())
        make_private_folder(Path(identity.runtime) / "tmp")
    except OSError as error:
        raise PlatformError(f"no folder for sockets can be made: {error}") from error


def _short_base() -> str:
    base = tempfile.gettempdir()
    return base if len(base) <= _LONGEST_BASE else "/tmp"  # noqa: S108 - mkdtemp is safe there


def _is_private(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _token() -> str:
    return secrets.token_urlsafe(24)


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def _signing_key() -> str:
    """Return a new private key in PEM, with which trainers sign models."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


_CREDENTIALS: dict[str, Callable[[], str]] = {
    "s3_access_key": lambda: "DMLS" + secrets.token_hex(8).upper(),
    "s3_secret_key": _token,
    "s3_internal_key": lambda: secrets.token_hex(32),
    "postgres_password": _token,
    "airflow_db_password": _token,
    "mlflow_db_password": _token,
    "optuna_db_password": _token,
    "mlflow_password": lambda: secrets.token_urlsafe(12),
    "mlflow_secret_key": _token,
    "airflow_password": lambda: secrets.token_urlsafe(12),
    "airflow_fernet_key": _fernet_key,
    "airflow_jwt_secret": lambda: secrets.token_urlsafe(64),
    "airflow_secret_key": _token,
    "triton_key": lambda: secrets.token_hex(16),
    "metrics_token": _token,
    "signing_key": _signing_key,
}


_MODELS_FOLDER = "triton_models"

BUCKET = "dmls"
REGION = "us-east-1"

HOME_VARIABLE = ProcessSettings.variable("home")
"""Variable that gives the state folder to every command of DMLS."""


@dataclass(frozen=True, slots=True)
class Context:
    """Folders, ports and credentials of one platform, with its ``state`` folder and ``identity``."""

    state: Path
    identity: Identity

    @property
    def runtime(self) -> Path:
        """Short folder for sockets and temporary files."""
        return Path(self.identity.runtime)

    @property
    def root(self) -> str:
        """URL of the store's root."""
        return f"s3://{BUCKET}"

    @property
    def model_repository(self) -> Path:
        """The project's ``triton_models`` if it exists, else a folder in the state."""
        beside = self.state.parent / _MODELS_FOLDER
        return beside if beside.is_dir() else self.state / _MODELS_FOLDER

    @property
    def inference_log(self) -> Path:
        """Folder that Triton writes sampled requests to, until the monitor fetches them."""
        return self.state / "inference_log"

    def port(self, name: str) -> int:
        """Return the port called ``name``."""
        return self.identity.ports[name]

    def secret(self, name: str) -> str:
        """Return the credential called ``name``."""
        return self.identity.credentials[name]

    def address(self, name: str) -> str:
        """Return ``host:port`` of the port called ``name``."""
        return f"127.0.0.1:{self.port(name)}"

    def url(self, name: str) -> str:
        """Return the HTTP URL of the port called ``name``."""
        return f"http://{self.address(name)}"

    def s3_environment(self) -> dict[str, str]:
        """Return boto3's variables for the store."""
        return {
            "AWS_ACCESS_KEY_ID": self.secret("s3_access_key"),
            "AWS_SECRET_ACCESS_KEY": self.secret("s3_secret_key"),
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url("s3"),
        }


_FOREIGN = ("AIRFLOW", "_AIRFLOW", "AWS_", "DMLS_", "MLFLOW_", "_MLFLOW", "PG", "SUPERVISOR_", "WEED_")
"""Prefixes of variables that would connect a service to another platform."""

LOOPBACK = "127.0.0.1,localhost"


def base_environment(context: Context) -> dict[str, str]:
    """Return this process's environment without other platforms' variables, and with this one's id."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {
        **inherited,
        ID_VARIABLE: context.identity.id,
        "TMPDIR": str(context.runtime / "tmp"),
        **_unproxied(),
        # setproctitle would overwrite the environment, which holds the id.
        "SPT_NOENV": "1",
    }


def spare_loopback_from_proxies() -> None:
    """Let this process reach the services directly, whatever proxy is set."""
    os.environ.update(_unproxied())


def _unproxied() -> dict[str, str]:
    hosts = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    value = hosts if hosts.startswith(LOOPBACK) else ",".join(filter(None, (LOOPBACK, hosts)))
    return {"NO_PROXY": value, "no_proxy": value}
