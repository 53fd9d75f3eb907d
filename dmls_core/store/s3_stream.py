"""An object's body as a stream that survives a broken connection."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from botocore.exceptions import HTTPClientError, IncompleteReadError
from urllib3.exceptions import HTTPError

from dmls_core.errors import StoreError
from dmls_core.store.s3_errors import translated

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from mypy_boto3_s3 import S3Client

ATTEMPTS = 4


class ResumingBody(io.RawIOBase):
    """Reads a response's body; after a failure it asks for the rest of the very same content."""

    def __init__(self, client: S3Client, at: dict[str, Any], response: dict[str, Any]) -> None:
        """Take over an open response.

        Args:
            client: to ask again with.
            at: ``Bucket`` and ``Key`` of the object.
            response: what ``get_object`` returned, for the object's first byte onwards.
        """
        self.response = response
        self._client = client
        self._at = at
        self._body = response["Body"]
        self._position = 0
        self._end = int(response["ContentLength"])
        self._failures = 0

    def readable(self) -> bool:
        """Say that this can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read into ``buffer``; return the number of bytes, 0 at the end.

        Raises:
            StoreError: the connection broke too often, or the object changed meanwhile.
        """
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
        """Let go of the connection."""
        if not self.closed:
            self._body.close()
        super().close()

    def _resume(self, error: Exception | None) -> None:
        self._failures += 1
        url = f"s3://{self._at['Bucket']}/{self._at['Key']}"
        if self._failures >= ATTEMPTS:
            raise StoreError(
                f"cannot read {url}: the connection broke {ATTEMPTS} times; try again"
            ) from error
        self._body.close()
        with translated(f"read {url}"):
            self._body = self._client.get_object(
                **self._at,
                Range=f"bytes={self._position}-{self._end - 1}",
                IfMatch=self.response["ETag"],
            )["Body"]
