"""The store over S3, by boto3. Imported on first use: boto3 is slow to import."""

from __future__ import annotations

import base64
import hashlib
import io
import mimetypes
import shutil
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from boto3.s3.transfer import TransferConfig

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError
from dmls_core.store.base import CHUNK, ObjectInfo, Store, check_key, file_sha256
from dmls_core.store.local_files import temporary_beside
from dmls_core.store.s3_client import make_client
from dmls_core.store.s3_errors import translated
from dmls_core.store.s3_stream import ResumingBody

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

LARGE = 64 * CHUNK
"""Bytes from which an object moves in parts, several at a time."""

TRANSFER = TransferConfig(multipart_threshold=LARGE, multipart_chunksize=16 * CHUNK, max_concurrency=4)
"""At most a few parts of 16 MiB are held in memory."""

SHA256 = "dmls-sha256"
"""Object metadata: hash of the content, checked by whoever reads the whole object."""

WRITE_ID = "dmls-write"
"""Object metadata: names one write, so that a retried conditional write recognises itself."""


class S3Store(Store):
    """Objects below ``s3://bucket/prefix``.

    The server must honour ``If-None-Match`` and ``If-Match`` on PUT, as AWS S3 and SeaweedFS do.
    """

    def __init__(self, bucket: str, prefix: str = "", client: S3Client | None = None) -> None:
        """Bind to a bucket; nothing is asked of the server yet.

        Args:
            bucket: must exist.
            prefix: without slashes at its ends; empty for the whole bucket.
            client: a ready client, such as an Airflow connection's; made from the environment otherwise.
        """
        super().__init__(f"s3://{bucket}/{prefix}".rstrip("/"))
        with translated(f"connect to {self.url}"):
            self.client = client or make_client()
        self.bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def head(self, key: str) -> ObjectInfo | None:
        """See ``Store.head``."""
        try:
            return _info(key, self._head(key))
        except ObjectMissingError:
            return None

    def read(self, key: str, *, limit: int | None = None) -> tuple[bytes, ObjectInfo]:
        """See ``Store.read``."""
        part: dict[str, Any] = {} if limit is None else {"Range": f"bytes=0-{max(limit, 1) - 1}"}
        with translated(f"read {self._url(key)}"):
            try:
                response = dict(self.client.get_object(**self.at(key), **part))
            except self.client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] != "InvalidRange":
                    raise
                response = dict(self.client.get_object(**self.at(key)))  # empty: it has no first byte
            info = _info(key, response)
            with ResumingBody(self.client, self.at(key), response) as body:
                data = body.read()
        if limit is None:
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
            extra = {"ContentType": _content_type(key), "Metadata": {SHA256: sha256}}
            self.client.upload_file(str(path), self.bucket, self._full(key), ExtraArgs=extra, Config=TRANSFER)
        return _info(key, self._head(key))

    def download(self, key: str, path: Path, *, etag: str | None = None) -> ObjectInfo:
        """See ``Store.download``."""
        with translated(f"copy {self._url(key)} to {path}"), temporary_beside(path) as temporary:
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
                for item in page.get("Contents", []):
                    key = item["Key"][len(self._prefix) :]
                    yield ObjectInfo(key, item["Size"], item["ETag"].strip('"'), item["LastModified"])

    def delete(self, key: str) -> None:
        """See ``Store.delete``."""
        with translated(f"delete {self._url(key)}"):
            self.client.delete_object(**self.at(key))

    def _full(self, key: str) -> str:
        return self._prefix + check_key(key)

    def at(self, key: str) -> dict[str, Any]:
        """Return where an object lies, as the client's calls take it: ``Bucket`` and ``Key``."""
        return {"Bucket": self.bucket, "Key": self._full(key)}

    def _url(self, key: str) -> str:
        return f"s3://{self.bucket}/{self._prefix}{key}"

    def _head(self, key: str) -> dict[str, Any]:
        with translated(f"read {self._url(key)}"):
            return dict(self.client.head_object(**self.at(key)))

    def _body(self, key: str, etag: str | None) -> ResumingBody:
        match: dict[str, Any] = {} if etag is None else {"IfMatch": f'"{etag}"'}
        with translated(f"read {self._url(key)}"):
            response = dict(self.client.get_object(**self.at(key), **match))
        body = ResumingBody(self.client, self.at(key), response)
        if etag is not None and _etag(response) != etag:  # a server that ignores the condition
            body.close()
            raise ConflictError(f"{self._url(key)} has changed since it was listed")
        return body

    def _fetch(self, key: str, target: Path, etag: str | None) -> dict[str, Any]:
        """Write the object to ``target``; return the response that described it."""
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
            # The answer to a first attempt may have been lost and its retry refused: was it us?
            try:
                current = self._head(key)
            except ObjectMissingError:
                current = {"Metadata": {}}
            if current["Metadata"].get(WRITE_ID) == write_id:
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
                Metadata={SHA256: hashlib.sha256(data).hexdigest(), WRITE_ID: write_id},
                **condition,  # type: ignore[arg-type]
            )
        return ObjectInfo(key, len(data), _etag(dict(response)), datetime.now(UTC))

    def _check(self, key: str, sha256: str, response: dict[str, Any]) -> None:
        expected = response.get("Metadata", {}).get(SHA256, sha256)
        if sha256 != expected:
            raise StoreError(
                f"cannot read {self._url(key)}: its content does not match its SHA-256; write it again"
            )


def _etag(response: dict[str, Any]) -> str:
    return str(response["ETag"]).strip('"')


def _info(key: str, response: dict[str, Any]) -> ObjectInfo:
    whole = response.get("ContentRange", "").rpartition("/")[2] or response["ContentLength"]
    return ObjectInfo(key, int(whole), _etag(response), response["LastModified"])


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _content_type(key: str) -> str:
    guessed = mimetypes.guess_type(key)[0] or "application/octet-stream"
    return f"{guessed}; charset=utf-8" if guessed.startswith("text/") else guessed
