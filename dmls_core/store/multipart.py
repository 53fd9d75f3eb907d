"""Uploads in parts, each in a request of its own: large files come through without being held anywhere."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dmls_core.errors import ConflictError, PlatformError
from dmls_core.store.base import Store

if TYPE_CHECKING:
    from dmls_core.store.s3 import S3Store

LEAST_PART = 5 << 20
"""Bytes of any part but the last that S3 asks for at least."""

MOST_PARTS = 10_000
"""Parts that S3 takes for one object."""


def begin_upload(store: Store, key: str) -> str:
    """Begin an upload and return its id; unfinished ones of the same object are given up.

    Raises:
        PlatformError: the store is not in S3, or S3 failed.
    """
    from dmls_core.store.s3_errors import translated

    s3 = _in_s3(store)
    at = s3.at(key)
    with translated(f"write {s3.url}/{key}"):
        for left in s3.client.list_multipart_uploads(Bucket=at["Bucket"], Prefix=at["Key"]).get(
            "Uploads", []
        ):
            if left.get("Key") == at["Key"]:
                s3.client.abort_multipart_upload(**at, UploadId=left["UploadId"])
        return s3.client.create_multipart_upload(**at)["UploadId"]


def upload_part(store: Store, key: str, upload: str, number: int, data: bytes) -> None:
    """Write one part; written again, it is replaced.

    Args:
        store: holds the object.
        key: the object.
        upload: what ``begin_upload`` returned.
        number: of the part, from 1 on.
        data: at least ``LEAST_PART`` bytes, except in the last part.

    Raises:
        StoreError: S3 failed, or knows no such upload of this object.
    """
    from dmls_core.store.s3_errors import translated

    s3 = _in_s3(store)
    with translated(f"write part {number} of {s3.url}/{key}"):
        s3.client.upload_part(**s3.at(key), UploadId=upload, PartNumber=number, Body=data)


def finish_upload(store: Store, key: str, upload: str, size: int) -> None:
    """Put the parts together: from now on the object is there.

    Raises:
        ConflictError: the parts that are there are not the whole file.
        StoreError: S3 failed, or knows no such upload of this object.
    """
    from dmls_core.store.s3_errors import translated

    s3 = _in_s3(store)
    at = s3.at(key)
    with translated(f"write {s3.url}/{key}"):
        pages = s3.client.get_paginator("list_parts").paginate(**at, UploadId=upload)
        listed = [part for page in pages for part in page.get("Parts", [])]
        # SeaweedFS lists a part that was written twice twice; the later one counts.
        listed.sort(key=lambda part: (part["PartNumber"], part["LastModified"]))
        parts = list({part["PartNumber"]: part for part in listed}.values())
        whole = sum(part["Size"] for part in parts) == size
        if not whole or [part["PartNumber"] for part in parts] != list(range(1, len(parts) + 1)):
            raise ConflictError(f"{key} is not complete: {len(parts)} parts have arrived; send it again")
        s3.client.complete_multipart_upload(
            **at,
            UploadId=upload,
            MultipartUpload={
                "Parts": [{"PartNumber": part["PartNumber"], "ETag": part["ETag"]} for part in parts]
            },
        )


def abort_upload(store: Store, key: str, upload: str) -> None:
    """Give an upload up; one that S3 does not know is no error.

    Raises:
        StoreError: S3 failed.
    """
    from dmls_core.store.s3_errors import translated

    s3 = _in_s3(store)
    with suppress(ConflictError), translated(f"give up {s3.url}/{key}"):
        s3.client.abort_multipart_upload(**s3.at(key), UploadId=upload)


def _in_s3(store: Store) -> S3Store:
    from dmls_core.store.s3 import S3Store

    if not isinstance(store, S3Store):
        raise PlatformError(
            f"{store.url} is a folder: files are uploaded to S3 alone; put the file there yourself"
        )
    return store
