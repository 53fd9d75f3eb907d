"""Access to S3: clients with bounded timeouts, errors with hints, and a body that resumes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import boto3
from boto3.exceptions import Boto3Error
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from botocore.loaders import Loader, create_loader
from botocore.utils import parse_timestamp
from urllib3.exceptions import HTTPError

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3 import S3Client

REGION = "us-east-1"
"""Region when none is set; servers other than AWS ignore it."""

CONNECTIONS = 32
"""Connections that a client keeps open: enough for all threads that share it."""

_ATTEMPTS = 4
"""Requests for one body before a broken connection is an error."""

INTERACTIVE: dict[str, Any] = {
    "connect_timeout": 3,
    "read_timeout": 10,
    "retries": {"total_max_attempts": 3, "mode": "standard"},
    "max_pool_connections": CONNECTIONS,
}

_MISSING = {"NoSuchKey", "404", "NotFound"}
_CONFLICT = {"PreconditionFailed", "412", "ConditionalRequestConflict"}
_DENIED = {"AccessDenied", "403", "Forbidden", "AllAccessDisabled"}
_CREDENTIALS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"}
_BUSY = {"SlowDown", "ServiceUnavailable", "503", "RequestTimeout", "InternalError", "500", "Throttling"}


def make_client(*, interactive: bool = False) -> S3Client:
    """Return a client with the credentials of the environment, with bounded retries and timeouts."""
    # Your own server rarely has a DNS name for each bucket.
    own_server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    config = Config(
        retries={"mode": "standard", "total_max_attempts": 4},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=CONNECTIONS,
        # Many S3-compatible servers reject the trailing checksums that are the default.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if own_server else "auto"},
    )
    if interactive:
        config = config.merge(Config(**INTERACTIVE))
    # Threads must not share the default session.
    session = prepare_session(boto3.session.Session())
    return session.client("s3", region_name=session.region_name or REGION, config=config)


def hook_client(hook: Any, *, interactive: bool = False) -> S3Client:
    """Return the client of Airflow's ``S3Hook``."""
    options = INTERACTIVE if interactive else {"max_pool_connections": CONNECTIONS}
    hook = type(hook)(hook.aws_conn_id, config=hook.config.merge(Config(**options)))
    get_session = hook.get_session
    hook.get_session = lambda *args, **named: prepare_session(get_session(*args, **named))
    client: S3Client = hook.get_conn()
    return client


def prepare_session(session: boto3.session.Session) -> boto3.session.Session:
    """Have a new session share boto's descriptions of services, and use ``parse_time``; return it.

    Parsing the descriptions takes most of the time in which a client is made, and ``parse_time`` makes a
    listing three times as cheap.
    """
    core = session._session  # noqa: SLF001
    core.register_component("data_loader", _loader(core.get_config_variable("data_path")))
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
    return session


@cache
def _loader(data_path: str | None) -> Loader:
    """Return the loader of descriptions, which keeps those that it has read."""
    return create_loader(data_path)


def environment(hook: Any = None) -> dict[str, str]:
    """Return the variables with which boto3 elsewhere reaches the service of ``hook`` or this process."""
    if hook is None:
        return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    credentials = hook.get_credentials()
    variables = {
        "AWS_ACCESS_KEY_ID": credentials.access_key,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_key,
        "AWS_SESSION_TOKEN": credentials.token,
        "AWS_DEFAULT_REGION": hook.region_name or REGION,
        "AWS_ENDPOINT_URL": hook.conn_config.endpoint_url,
    }
    return {name: value for name, value in variables.items() if value}


def parse_times_fast(client: Any) -> None:
    """Have a client that others made use ``parse_time``, which makes a listing three times as cheap."""
    # botocore takes it from the session, which Airflow's hook makes anew for each client.
    parsers = client._endpoint._response_parser_factory  # noqa: SLF001
    parsers.set_parser_defaults(timestamp_parser=parse_time)


def parse_time(text: str | float) -> datetime:
    """Return a timestamp of a response; parse the ISO form of listings much faster than botocore does."""
    if isinstance(text, str) and text.endswith("Z"):
        return datetime.fromisoformat(text)
    moment: datetime = parse_timestamp(cast("str", text))
    return moment


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Turn errors of boto3 into ``StoreError``; messages begin with ``action`` ("read s3://bucket/key").

    The server's own message stays in the chained exception, since it may contain an access key.
    """
    try:
        yield
    except ClientError as error:
        raise _from_code(action, error) from error
    except (BotoCoreError, Boto3Error, OSError) as error:
        raise StoreError(f"cannot {action}: {_from_client(error)}") from error


class AccessDeniedError(StoreError):
    """The credentials do not allow a request, or to know whether the object exists."""


def _from_code(action: str, error: ClientError) -> StoreError:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    if code in _MISSING:
        return ObjectMissingError(f"cannot {action}: there is no such object")
    if code in _CONFLICT:
        return ConflictError(f"cannot {action}: it was changed by another writer")
    if code == "NoSuchUpload":
        return ConflictError(f"cannot {action}: this upload was finished or aborted; send the file again")
    if code == "NoSuchBucket":
        hint = "the bucket does not exist; create it, or correct the root (DMLS_ROOT)"
    elif code in _DENIED:
        hint = "access denied; grant these credentials list, read, write and delete on the bucket"
        return AccessDeniedError(f"cannot {action}: {hint}")
    elif code == "ExpiredToken":
        hint = "the credentials have expired; raise the maximum session duration of the role that gave them"
    elif code in _CREDENTIALS:
        hint = "the credentials are not accepted; correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    elif code in _BUSY:
        hint = "the service is overloaded or restarting; try again"
    else:
        hint = f"the service responded {code}"
    return StoreError(f"cannot {action}: {hint}")


def _from_client(error: Exception) -> str:
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"
    if isinstance(error, EndpointConnectionError | BotoConnectionError | HTTPClientError):
        return "no response from the service; is it running, and is AWS_ENDPOINT_URL right?"
    return f"{type(error).__name__}: {error}"


class ResumingBody(io.RawIOBase):
    """Body of a response; after a broken connection it requests the rest of the same content."""

    def __init__(self, client: S3Client, at: dict[str, Any], response: dict[str, Any]) -> None:
        """Wrap a response of ``get_object`` for the whole object ``at`` (``Bucket`` and ``Key``)."""
        self.response = response
        self._client = client
        self._at = at
        self._body = response["Body"]
        self._position = 0
        self._end = int(response["ContentLength"])
        self._failures = 0

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill ``buffer``; raise ``StoreError`` if the connection broke too often or the object changed."""
        view = memoryview(buffer).cast("B")
        while self._position < self._end:
            try:
                data = self._body.read(min(len(view), self._end - self._position))
            except (HTTPClientError, HTTPError, IncompleteReadError, OSError) as error:
                self._resume(error)
                continue
            if not data:
                self._resume(None)
                continue
            view[: len(data)] = data
            self._position += len(data)
            return len(data)
        return 0

    def close(self) -> None:
        """Close the connection."""
        if not self.closed:
            self._body.close()
        super().close()

    def _resume(self, error: Exception | None) -> None:
        self._failures += 1
        url = f"s3://{self._at['Bucket']}/{self._at['Key']}"
        if self._failures >= _ATTEMPTS:
            raise StoreError(
                f"cannot read {url}: the connection broke {_ATTEMPTS} times; try again"
            ) from error
        self._body.close()
        with translated(f"read {url}"):
            self._body = self._client.get_object(
                **self._at,
                Range=f"bytes={self._position}-{self._end - 1}",
                IfMatch=self.response["ETag"],
            )["Body"]
