"""What makes one embedded platform itself: its id, credentials, ports and folder for sockets.

All are made once and kept in ``identity.json`` (mode 600).
"""

from __future__ import annotations

import base64
import os
import secrets
import stat
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dmls_core.devstack.files import make_private_folder, read_json, write_private_json
from dmls_core.errors import PlatformError

LONGEST_BASE = 40
"""A unix socket's path has at most 107 bytes; what is made below the runtime folder needs the rest."""


@dataclass(slots=True)
class Identity:
    """Contents of ``identity.json``.

    Attributes:
        id: the mark in the environment of every process of this platform.
        runtime: short folder for unix sockets and temporary files.
        credentials: generated secrets by name.
        ports: loopback ports by name.
    """

    id: str
    runtime: str
    credentials: dict[str, str]
    ports: dict[str, int] = field(default_factory=dict)

    def save(self, file: Path) -> None:
        """Write the file, mode 600."""
        write_private_json(file, {"schema": 1, **asdict(self)})


def load_identity(file: Path) -> Identity:
    """Read the identity, or make one; credentials that it lacks are generated."""
    content = read_json(file)
    if content is None:
        new = secrets.token_hex(8)
        identity = Identity(id=new, runtime=f"{_short_base()}/dmls-{new}", credentials={})
    else:
        content.pop("schema", None)
        try:
            identity = Identity(**content)
        except TypeError as error:
            raise PlatformError(f"{file} is damaged: {error}") from error
    for name, make in _CREDENTIALS.items():
        identity.credentials.setdefault(name, make())
    return identity


def ensure_runtime_folder(identity: Identity) -> None:
    """Have ``identity.runtime`` name a folder of ours with mode 700: the kept one, or else a new one.

    Raises:
        PlatformError: none can be made.
    """
    try:
        if not _is_private(Path(identity.runtime)):
            # Gone, or there and another's: its name is known, so somebody might lure us into it.
            identity.runtime = tempfile.mkdtemp(prefix="dmls-", dir=_short_base())
        make_private_folder(Path(identity.runtime) / "tmp")
    except OSError as error:
        raise PlatformError(f"no folder for sockets can be made: {error}") from error


def _short_base() -> str:
    base = tempfile.gettempdir()
    return base if len(base) <= LONGEST_BASE else "/tmp"  # noqa: S108 - mkdtemp is safe there


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _token() -> str:
    return secrets.token_urlsafe(24)


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


_CREDENTIALS: dict[str, Callable[[], str]] = {
    "s3_access_key": lambda: "DMLS" + secrets.token_hex(8).upper(),
    "s3_secret_key": _token,
    "s3_internal_key": lambda: secrets.token_hex(32),
    "postgres_password": _token,
    "airflow_db_password": _token,
    "mlflow_db_password": _token,
    "optuna_db_password": _token,
    "airflow_password": lambda: secrets.token_urlsafe(12),
    "airflow_fernet_key": _fernet_key,
    "airflow_jwt_secret": lambda: secrets.token_urlsafe(64),
    "airflow_secret_key": _token,
    "triton_key": lambda: secrets.token_hex(16),
    "metrics_token": _token,
}
