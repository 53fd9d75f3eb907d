"""A store in S3, with boto3. Import it inside functions: boto3 is slow to import."""

from __future__ import annotations

import base64
import hashlib
import io
import mimetypes
import shutil
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Self, cast

from boto3.s3.transfer import TransferConfig

from dmls_core.errors import ConflictError, ObjectMissingError, PlatformError, StoreError
from dmls_core.store.base import CHUNK, Access, ObjectInfo, Store, check_key, file_sha256, poll_changes
from dmls_core.store.local import temporary_file
from dmls_core.store.s3_client import (
    AccessDeniedError,
    ResumingBody,
    environment,
    hook_client,
    make_client,
    parse_times_fast,
    translated,
)
from dmls_core.store.s3_listing import RepeatedListing

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGE = 64 * CHUNK
"""Size from which an object is transferred in parts, several at a time."""

TRANSFER = TransferConfig(multipart_threshold=LARGE, multipart_chunksize=16 * CHUNK, max_concurrency=4)
"""At most a few parts of 16 MiB are in memory."""

_SHA256 = "dmls-sha256"
"""Object metadata: hash of the content, checked by every reader of the whole object."""

_WRITE_ID = "dmls-write"
"""Object metadata: identifies a write, so that a retried conditional write recognizes itself."""


class S3Store(Store):
    """Objects below ``s3://bucket/prefix``.

    The server must support ``If-None-Match`` and ``If-Match`` on PUT, as AWS S3 and SeaweedFS do.
    """

    hook_class: ClassVar[str] = "airflow.providers.amazon.aws.hooks.s3.S3Hook"

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        client: S3Client | None = None,
        *,
        hook: Any = None,
        interactive: bool = False,
    ) -> None:
        """Bind to an existing bucket; no request is sent yet.

        ``prefix`` has no slashes at its ends. Without ``client``, ``hook`` or ``AWS_*`` give one.
        """
        super().__init__(f"s3://{bucket}/{prefix}".rstrip("/"))
        self.bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._hook = hook
        self._interactive = interactive
        if client:
            self.client = client

    @cached_property
    def client(self) -> S3Client:
        """The boto3 client."""
        with translated(f"connect to {self.url}"):
            if self._hook is not None:
                return hook_client(self._hook, interactive=self._interactive)
            return make_client(interactive=self._interactive)

    @classmethod
    def from_url(cls, url: str, *, hook: Any = None, interactive: bool = False) -> Self:
        """See ``Store.from_url``; ``url`` is ``s3://bucket/prefix``."""
        bucket, _, prefix = url.partition("://")[2].partition("/")
        if not bucket or "@" in bucket:
            raise PlatformError(
                f"{url!r} is not the URL of a store: the bucket is missing; give s3://bucket/prefix"
            )
        prefix = prefix.strip("/")
        if prefix:
            check_key(prefix)
        return cls(bucket, prefix, hook=hook, interactive=interactive)

    def head(self, key: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        try:
            return _info(key, self._head(key))
        except ObjectMissingError:
            return None

    def read(self, key: str, *, limit: int | None = None, start: int = 0) -> tuple[bytes, ObjectInfo]:
        """See ``Store.read``."""
        end = "" if limit is None else start + max(limit, 1) - 1
        entire = limit is None and not start
        part: dict[str, Any] = {} if entire else {"Range": f"bytes={start}-{end}"}
        with self._reading(key):
            try:
                response = dict(self.client.get_object(**self.at(key), **part))
            except self.client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] != "InvalidRange":
                    raise
                response = dict(self.client.get_object(**self.at(key)))  # empty: it has no first byte
            info = _info(key, response)
            with ResumingBody(self.client, self.at(key), response) as body:
                data = body.read()
        if entire:
            self._check(key, hashlib.sha256(data).hexdigest(), response)
        return data[:limit], info

    def open(self, key: str, *, etag: str | None = None) -> BinaryIO:
        """See ``Store.open``."""
        return cast("BinaryIO", io.BufferedReader(self._body(key, etag), CHUNK))

    def put(self, key: str, data: bytes, *, content_type: str | None = None) -> ObjectInfo:
        """See ``Store.put``."""
        return self._put(key, data, content_type, uuid.uuid4().hex)

    def create(self, key: str, data: bytes) -> ObjectInfo:
        """See ``Store.create``."""
        return self._put_if(key, data, f"{self._url(key)} exists already", IfNoneMatch="*")

    def replace(self, key: str, data: bytes, etag: str) -> ObjectInfo:
        """See ``Store.replace``."""
        try:
            return self._put_if(
                key, data, f"{self._url(key)} was changed by another writer", IfMatch=f'"{etag}"'
            )
        except ObjectMissingError as error:
            raise ConflictError(f"{self._url(key)} was removed by another writer") from error

    def upload(self, key: str, path: Path) -> ObjectInfo:
        """See ``Store.upload``."""
        with translated(f"write {self._url(key)}"):
            with path.open("rb") as stream:
                sha256 = file_sha256(stream)
            extra = {"ContentType": _content_type(key), "Metadata": {_SHA256: sha256}}
            self.client.upload_file(str(path), self.bucket, self._full(key), ExtraArgs=extra, Config=TRANSFER)
        return _info(key, self._head(key))

    def download(self, key: str, path: Path, *, etag: str | None = None) -> ObjectInfo:
        """See ``Store.download``."""
        with translated(f"copy {self._url(key)} to {path}"), temporary_file(path) as temporary:
            response = self._fetch(key, temporary, etag)
            with temporary.open("rb") as stream:
                self._check(key, file_sha256(stream), response)
            temporary.replace(path)
        return _info(key, response)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``Store.list``."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=self._prefix + prefix
        )
        with translated(f"list {self._url(prefix)}"):
            for page in pages:
                yield from map(self._listed, page.get("Contents", []))

    def delete(self, key: str) -> None:
        """See ``Store.delete``."""
        with translated(f"delete {self._url(key)}"):
            self.client.delete_object(**self.at(key))

    def erase(self, key: str) -> None:
        """See ``Store.erase``; without versioning, the only version has the id ``null``."""
        at = self.at(key)
        pages = self.client.get_paginator("list_object_versions").paginate(
            Bucket=at["Bucket"], Prefix=at["Key"]
        )
        with translated(f"erase {self._url(key)}"):
            for page in pages:
                for version in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                    if version["Key"] == at["Key"]:
                        self.client.delete_object(**at, VersionId=version["VersionId"])

    def trainer_environment(self) -> dict[str, str]:
        """See ``Store.trainer_environment``."""
        return environment(self._hook)

    def limited_environment(self, role: str, access: Access, name: str) -> dict[str, str]:
        """See ``Store.limited_environment``; ``role`` is the ARN of a role that STS knows."""
        from dmls_core.store.s3_session import session_environment, session_policy

        policy = session_policy(self.bucket, self._prefix, access)
        return session_environment(self._hook, role, policy, name)

    async def list_async(self, prefix: str) -> Sequence[ObjectInfo]:
        """See ``Store.list_async``."""
        async with self._async_client() as client:
            return await self._lister(client, prefix)()

    async def watch(self, prefix: str, *, poll_seconds: float) -> AsyncGenerator[Sequence[ObjectInfo], None]:
        """See ``Store.watch``; one connection serves all listings."""
        async with self._async_client() as client:
            async for listing in poll_changes(self._lister(client, prefix), poll_seconds):
                yield listing

    def begin_upload(self, key: str) -> str:
        """See ``Store.begin_upload``."""
        at = self.at(key)
        with translated(f"write {self._url(key)}"):
            unfinished = self.client.list_multipart_uploads(Bucket=at["Bucket"], Prefix=at["Key"])
            for upload in unfinished.get("Uploads", []):
                if upload.get("Key") == at["Key"]:
                    self.client.abort_multipart_upload(**at, UploadId=upload["UploadId"])
            return self.client.create_multipart_upload(**at)["UploadId"]

    def upload_part(self, key: str, upload: str, number: int, data: bytes) -> None:
        """See ``Store.upload_part``."""
        with translated(f"write part {number} of {self._url(key)}"):
            self.client.upload_part(**self.at(key), UploadId=upload, PartNumber=number, Body=data)

    def finish_upload(self, key: str, upload: str, size: int) -> None:
        """See ``Store.finish_upload``."""
        at = self.at(key)
        with translated(f"write {self._url(key)}"):
            pages = self.client.get_paginator("list_parts").paginate(**at, UploadId=upload)
            listed = [part for page in pages for part in page.get("Parts", [])]
            # SeaweedFS lists both writes of a part; the later one counts.
            listed.sort(key=lambda part: (part["PartNumber"], part["LastModified"]))
            parts = list({part["PartNumber"]: part for part in listed}.values())
            complete = sum(part["Size"] for part in parts) == size
            if not complete or [part["PartNumber"] for part in parts] != list(range(1, len(parts) + 1)):
                raise ConflictError(f"{key} is not complete: {len(parts)} parts have arrived; send it again")
            self.client.complete_multipart_upload(
                **at,
                UploadId=upload,
                MultipartUpload={
                    "Parts": [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in parts]
                },
            )

    def abort_upload(self, key: str, upload: str) -> None:
        """See ``Store.abort_upload``."""
        with suppress(ConflictError), translated(f"abort the upload of {self._url(key)}"):
            self.client.abort_multipart_upload(**self.at(key), UploadId=upload)

    @asynccontextmanager
    async def _async_client(self) -> AsyncIterator[Any]:
        """Open an aiobotocore client; ``None`` without a hook to make it."""
        if self._hook is None:
            yield None
            return
        async with await self._hook.get_async_conn() as client:
            parse_times_fast(client)
            yield client

    def _lister(self, client: Any, prefix: str) -> Callable[[], Awaitable[Sequence[ObjectInfo]]]:
        """Return a function that lists the objects below ``prefix`` whenever it is called."""
        if client is None:
            return partial(super().list_async, prefix)
        listing = RepeatedListing(client, self.bucket, self._prefix + prefix, self._listed)

        async def fetch() -> Sequence[ObjectInfo]:
            with translated(f"list {self._url(prefix)}"):
                return await listing.objects()

        return fetch

    def _listed(self, item: Mapping[str, Any]) -> ObjectInfo:
        key = item["Key"][len(self._prefix) :]
        return ObjectInfo(key, item["Size"], item["ETag"].strip('"'), item["LastModified"])

    def _full(self, key: str) -> str:
        return self._prefix + check_key(key)

    def at(self, key: str) -> dict[str, Any]:
        """Return the client's arguments ``Bucket`` and ``Key`` for an object."""
        return {"Bucket": self.bucket, "Key": self._full(key)}

    def _url(self, key: str) -> str:
        return f"s3://{self.bucket}/{self._prefix}{key}"

    def _head(self, key: str) -> dict[str, Any]:
        with self._reading(key):
            return dict(self.client.head_object(**self.at(key)))

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        """Translate errors of a read.

        AWS denies access to a missing object if the credentials may list some prefixes only, as a trainer's.
        """
        try:
            with translated(f"read {self._url(key)}"):
                yield
        except AccessDeniedError as error:
            if not self._may_exist(key):
                raise ObjectMissingError(f"cannot read {self._url(key)}: there is no such object") from error
            raise

    def _may_exist(self, key: str) -> bool:
        try:
            return any(info.key == key for info in self.list(key))
        except StoreError:
            return True

    def _body(self, key: str, etag: str | None) -> ResumingBody:
        match: dict[str, Any] = {} if etag is None else {"IfMatch": f'"{etag}"'}
        with self._reading(key):
            response = dict(self.client.get_object(**self.at(key), **match))
        body = ResumingBody(self.client, self.at(key), response)
        if etag is not None and _etag(response) != etag:  # a server that ignores the condition
            body.close()
            raise ConflictError(f"{self._url(key)} has changed since it was listed")
        return body

    def _fetch(self, key: str, target: Path, etag: str | None) -> dict[str, Any]:
        """Write the object to ``target``; return the response that describes it."""
        before = self._head(key)
        if etag is not None and _etag(before) != etag:
            raise ConflictError(f"{self._url(key)} has changed since it was listed")
        if before["ContentLength"] < LARGE:
            with self._body(key, etag) as body, target.open("wb") as file:
                shutil.copyfileobj(body, file, CHUNK)
                return body.response
        with translated(f"read {self._url(key)}"):
            self.client.download_file(self.bucket, self._full(key), str(target), Config=TRANSFER)
        if _etag(self._head(key)) != _etag(before):
            raise ConflictError(f"{self._url(key)} changed while it was being read")
        return before

    def _put_if(self, key: str, data: bytes, lost: str, **condition: str) -> ObjectInfo:
        write_id = uuid.uuid4().hex
        try:
            return self._put(key, data, None, write_id, **condition)
        except ConflictError as error:
            # The response to a first attempt may have been lost, and its retry refused: then this write won.
            try:
                current = self._head(key)
            except ObjectMissingError:
                current = {"Metadata": {}}
            if current["Metadata"].get(_WRITE_ID) == write_id:
                return _info(key, current)
            raise ConflictError(lost) from error

    def _put(
        self, key: str, data: bytes, content_type: str | None, write_id: str, **condition: str
    ) -> ObjectInfo:
        with translated(f"write {self._url(key)}"):
            response = self.client.put_object(
                **self.at(key),
                Body=data,
                ContentType=content_type or _content_type(key),
                ContentMD5=_md5(data),
                Metadata={_SHA256: hashlib.sha256(data).hexdigest(), _WRITE_ID: write_id},
                **condition,  # type: ignore[arg-type]
            )
        return ObjectInfo(key, len(data), _etag(dict(response)), datetime.now(UTC))

    def _check(self, key: str, sha256: str, response: dict[str, Any]) -> None:
        expected = response.get("Metadata", {}).get(_SHA256, sha256)
        if sha256 != expected:
            raise StoreError(
                f"cannot read {self._url(key)}: its content does not match its SHA-256; write it again"
            )


def _etag(response: dict[str, Any]) -> str:
    return str(response["ETag"]).strip('"')


def _info(key: str, response: dict[str, Any]) -> ObjectInfo:
    size = response.get("ContentRange", "").rpartition("/")[2] or response["ContentLength"]
    return ObjectInfo(key, int(size), _etag(response), response["LastModified"])


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _content_type(key: str) -> str:
    guessed = mimetypes.guess_type(key)[0] or "application/octet-stream"
    return f"{guessed}; charset=utf-8" if guessed.startswith("text/") else guessed
