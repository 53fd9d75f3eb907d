"""From an address to a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from dmls_core.errors import PlatformError
from dmls_core.store.base import Store, check_key
from dmls_core.store.local import LocalStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def open_store(url: str, client: S3Client | None = None) -> Store:
    """Return the store at an address; nothing is read or written yet.

    Args:
        url: ``s3://bucket/prefix``, ``file:///folder`` or a folder's path.
        client: a ready boto3 S3 client; made from the environment (``AWS_*``) otherwise.

    Raises:
        PlatformError: the address is not of this form.
    """
    scheme, separator, rest = url.partition("://")
    if not url or (separator and scheme not in {"s3", "file"}):
        raise PlatformError(f"{url!r} is no store: give s3://bucket/prefix or a folder (DMLS_ROOT)")
    if not separator:
        return LocalStore(Path(url).expanduser())
    if scheme == "file":
        return LocalStore(Path(unquote(urlsplit(url).path)))
    bucket, _, prefix = rest.partition("/")
    if not bucket or "@" in bucket:
        raise PlatformError(f"{url!r} is no store: it names no bucket; give s3://bucket/prefix")
    prefix = prefix.strip("/")
    if prefix:
        check_key(prefix)

    from dmls_core.store.s3 import S3Store

    return S3Store(bucket, prefix, client)
