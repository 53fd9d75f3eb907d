"""What S3 and boto3 raise, in words that say how to mend it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boto3.exceptions import Boto3Error
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError

_MISSING = {"NoSuchKey", "404", "NotFound"}
_CONFLICT = {"PreconditionFailed", "412", "ConditionalRequestConflict"}
_DENIED = {"AccessDenied", "403", "Forbidden", "AllAccessDisabled"}
_CREDENTIALS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_BUSY = {"SlowDown", "ServiceUnavailable", "503", "RequestTimeout", "InternalError", "500", "Throttling"}


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Turn errors of boto3 into ``StoreError`` and its subclasses.

    Args:
        action: what was attempted on which object ("read s3://bucket/key"); begins the message. The
            server's own words stay in the chained exception: they may quote an access key.
    """
    try:
        yield
    except ClientError as error:
        raise _from_code(action, error) from error
    except (BotoCoreError, Boto3Error, OSError) as error:
        raise StoreError(f"cannot {action}: {_from_client(error)}") from error


def _from_code(action: str, error: ClientError) -> StoreError:
    code = str(error.response.get("Error", {}).get("Code", "unknown"))
    if code in _MISSING:
        return ObjectMissingError(f"cannot {action}: there is no such object")
    if code in _CONFLICT:
        return ConflictError(f"cannot {action}: it was changed by another writer")
    if code == "NoSuchUpload":
        return ConflictError(f"cannot {action}: this upload was finished or given up; send the file again")
    if code == "NoSuchBucket":
        mend = "the bucket does not exist; create it, or correct the root (DMLS_ROOT)"
    elif code in _DENIED:
        mend = "access denied; grant these credentials list, read, write and delete on the bucket"
    elif code in _CREDENTIALS:
        mend = "the credentials are not accepted; correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    elif code in _BUSY:
        mend = "the service is overloaded or restarting; try again"
    else:
        mend = f"the service answered {code}"
    return StoreError(f"cannot {action}: {mend}")


def _from_client(error: Exception) -> str:
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role"
    if isinstance(error, EndpointConnectionError | BotoConnectionError | HTTPClientError):
        return "no answer from the service; is it running, and is AWS_ENDPOINT_URL right?"
    return f"{type(error).__name__}: {error}"
