"""Delta Lake and Iceberg tables through Airflow connections: find a run's version, and copy its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException

from dmls_core import sandbox
from dmls_core.airflow.sources.connections import check_allowed, connection_failure, without_secrets
from dmls_core.data.lake.tables import copy_table, find_version
from dmls_core.errors import DataError, PlatformError, UserError, ValidationIssue
from dmls_core.settings import IntakeLimits
from dmls_core.spec.data_table import Source

if TYPE_CHECKING:
    from airflow.sdk import Connection

_S3_SCHEMES = ("s3", "s3a", "s3n")

_HINT = "select less by [columns] features, or ask the platform team to raise DMLS_INTAKE_SOURCE_SECONDS"


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of a Delta Lake table, or a snapshot of an Iceberg table; ``identity`` is the table's id."""

    number: int
    identity: str


@dataclass(frozen=True, slots=True)
class NeededRows:
    """The rows of a run: those with a time in its interval, which the trainer selects exactly."""

    column: str
    start: datetime
    end: datetime
    timezone: str

    def as_json(self) -> dict[str, Any]:
        """Return the arguments of ``TimeRange.of``."""
        between = [self.start.isoformat(), self.end.isoformat()]
        return {"column": self.column, "between": between, "timezone": self.timezone}


@dataclass(frozen=True)
class LakeReader:
    """Reads the lake table that a source names, in a sandbox that lasts until the reader is closed."""

    team: str
    source: Source
    _worker: sandbox.Worker = field(default_factory=sandbox.Worker, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    @property
    def table_format(self) -> str:
        """``delta`` or ``iceberg``."""
        return "delta" if self.source.delta else "iceberg"

    def find(self, as_of: datetime | None = None) -> TableVersion:
        """Return the version that the spec names; else that of before ``as_of``, or the newest.

        Raises:
            DataError: the team may not use the connection, or there is no such table or version.
            PlatformError: the connection or the table does not answer, or a package is missing.
        """
        pinned = self.source.pinned
        moment = as_of.isoformat() if as_of and pinned is None else None
        version = self._call(pinned, find_version, pinned, moment)
        return TableVersion(version["version"], version["identity"])

    def copy(
        self,
        version: TableVersion,
        used: Sequence[str],
        target: Path,
        *,
        rows: NeededRows | None = None,
        sample: bool = False,
    ) -> int:
        """Write rows of a version as Parquet, and return their number; see ``copy_table``."""
        times = rows.as_json() if rows else None
        count: int = self._call(
            version.number, copy_table, version.number, list(used), times, str(target), sample
        )
        return count

    def _call(self, version: int | None, function: Any, *args: object) -> Any:
        """Call a function of ``lake_tables``; errors name the connection and the table, and no secret."""
        connection = self.source.connection
        check_allowed(self.team, connection, "data.source.connection")
        label = self.source.label if version is None else f"{self.source.label}, {self._word} {version}"
        limits = sandbox.Limits(
            memory=4 << 30, seconds=IntakeLimits.from_environment().source_seconds, cpu_seconds=3600
        )
        try:
            return self._worker.call(
                function, self.table_format, self.source.lake, self._options, *args, limits=limits, hint=_HINT
            )
        except UserError as error:
            raise DataError([self._named(issue, label) for issue in error.issues]) from None
        except PlatformError as error:
            message = self._without_secrets(f"{label.removeprefix(f'{connection}: ')}: {error}")
            raise connection_failure(connection, PlatformError(message)) from None

    @property
    def _word(self) -> str:
        return "version" if self.source.delta else "snapshot"

    def _named(self, issue: ValidationIssue, label: str) -> ValidationIssue:
        message, excerpt = map(self._without_secrets, (issue.message, issue.found))
        return replace(issue, file=label, message=message, found=excerpt)

    def _without_secrets(self, text: str) -> str:
        return without_secrets(self.source.connection, text, self._options)

    @cached_property
    def _options(self) -> dict[str, str]:
        """Return what deltalake or pyiceberg need to read the table."""
        name = self.source.connection
        try:
            # Airflow's hooks replace a missing connection by the credentials of the worker.
            connection = BaseHook.get_connection(name)
            extra = {key: _text(value) for key, value in connection.extra_dejson.items()}
            if connection.conn_type != "aws":
                _check_credentials(self.source, extra)
                return extra if self.source.delta else {"name": name} | extra
            s3 = _s3(connection)
        except (
            AirflowException,
            AttributeError,
            ImportError,
            PlatformError,
            ValueError,
            OSError,
        ) as error:
            raise connection_failure(name, error) from error
        scheme = str(self.source.lake).partition("://")[0]
        if scheme not in _S3_SCHEMES:
            what = "a catalog" if self.source.iceberg else f"{scheme}://"
            message = f"it is one of AWS, which reads s3:// and not {what}"
            raise connection_failure(name, PlatformError(message))
        names = _DELTA if self.source.delta else _ICEBERG
        options = {names[key]: value for key, value in s3.items() if value}
        if self.source.delta and (s3["endpoint"] or "").startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
        return options


_DELTA = {
    "login": "AWS_ACCESS_KEY_ID",
    "password": "AWS_SECRET_ACCESS_KEY",
    "session": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
    "endpoint": "AWS_ENDPOINT_URL",
}
"""Storage options of deltalake."""

_ICEBERG = {
    "login": "s3.access-key-id",
    "password": "s3.secret-access-key",
    "session": "s3.session-token",
    "region": "s3.region",
    "endpoint": "s3.endpoint",
}
"""Properties of pyiceberg's files."""


_GOOGLE_SCHEMES, _AZURE_SCHEMES = (
    ("gs", "gcs"),
    ("abfs", "abfss", "adl", "adls", "az", "azure", "wasb", "wasbs"),
)

_CREDENTIALS = {
    "delta": {
        **dict.fromkeys(
            _GOOGLE_SCHEMES,
            re.compile(r"(google_)?service_account(_path|_key)?|(google_)?application_credentials"),
        ),
        **dict.fromkeys(
            _AZURE_SCHEMES,
            re.compile(
                r"(azure_)?(storage_)?(account_key|access_key|master_key|client_secret|sas_key|sas_token|token)"
                r"|bearer_token"
            ),
        ),
    },
    "iceberg": {
        **dict.fromkeys(_S3_SCHEMES, re.compile(r"(s3|client)\.access-key-id|s3\.anonymous")),
        **dict.fromkeys(_GOOGLE_SCHEMES, re.compile(r"gcs\.oauth2\.token")),
        **dict.fromkeys(
            _AZURE_SCHEMES, re.compile(r"adls\.(connection-string|account-key|sas-token|client-secret|token)")
        ),
    },
}
"""Library and scheme of an address -> names of its properties that are credentials of the object store.

deltalake's for S3 are not among them: Airflow has a type of connection for these.
"""


def _check_credentials(source: Source, extra: Mapping[str, str]) -> None:
    """Raise ``PlatformError`` if a connection has no credentials for the address that a spec names.

    Both libraries would take those of the worker: its role in the cloud, or files in its home. Whoever may
    use any connection would read whatever the worker can. The address of a catalog is the connection's own.
    """
    scheme, separator, _ = str(source.lake).partition("://")
    if not separator:
        return
    if scheme not in _S3_SCHEMES + _GOOGLE_SCHEMES + _AZURE_SCHEMES:
        raise PlatformError(f"DMLS reads no tables from {scheme}://: use s3://, gs:// or abfss://")
    names = _CREDENTIALS["delta" if source.delta else "iceberg"].get(scheme)
    if names and any(
        names.fullmatch(name.lower()) and value not in ("", "false") for name, value in extra.items()
    ):
        return
    remedy = "make it one of type AWS" if scheme in _S3_SCHEMES else "add them to its extra"
    raise PlatformError(f"it has no credentials for {scheme}://: {remedy}")


def _s3(connection: Connection) -> dict[str, str | None]:
    """Return the credentials and the address that Airflow's S3 hook gets from a connection."""
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

    hook = S3Hook(aws_conn_id=connection.conn_id)
    credentials = hook.get_credentials()
    return {
        "login": credentials.access_key,
        "password": credentials.secret_key,
        "session": credentials.token,
        "region": hook.region_name or "us-east-1",
        "endpoint": hook.conn_config.get_service_endpoint_url("s3"),
    }


def _text(value: object) -> str:
    """Return a property as both libraries expect it: text."""
    return str(value).lower() if isinstance(value, bool) else str(value)
