"""Uploads in parts, against a real S3 server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from dmls_core.errors import ConflictError, PlatformError
from dmls_core.store import Store, open_store
from dmls_core.store.s3 import S3Store
from tests.services.seaweed import S3Server

KEY = "incoming/lab/parts/data.csv"
MIN_PART_BYTES = 5 << 20
"""The smallest part that S3 takes, except for the last one."""

PARTS = (b"a" * MIN_PART_BYTES, b"b" * MIN_PART_BYTES, b"end")


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.bucket()


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> Store:
    return S3Store(bucket, uuid.uuid4().hex, s3_server.client())


def test_parts_in_any_order_and_repeated_make_one_object(store: Store):
    upload = store.begin_upload(KEY)
    for number in (3, 1, 2, 1):
        store.upload_part(KEY, upload, number, PARTS[number - 1])
    assert store.head(KEY) is None

    store.finish_upload(KEY, upload, sum(map(len, PARTS)))

    assert store.get(KEY) == b"".join(PARTS)


def test_an_incomplete_upload_is_invisible(store: Store):
    upload = store.begin_upload(KEY)
    store.upload_part(KEY, upload, 2, PARTS[2])

    for size in (len(PARTS[2]), 5):
        with pytest.raises(ConflictError, match="not complete"):
            store.finish_upload(KEY, upload, size)
    assert store.head(KEY) is None


def test_an_aborted_upload_is_gone(store: Store):
    upload = store.begin_upload(KEY)
    store.abort_upload(KEY, upload)
    store.abort_upload(KEY, upload)

    with pytest.raises(ConflictError, match="send the file again"):
        store.upload_part(KEY, upload, 1, b"late")


def test_a_new_upload_aborts_the_previous_one(store: Store):
    old = store.begin_upload(KEY)
    store.upload_part(KEY, old, 1, b"old")

    new = store.begin_upload(KEY)
    store.upload_part(KEY, new, 1, b"new")
    store.finish_upload(KEY, new, 3)

    assert store.get(KEY) == b"new"
    with pytest.raises(ConflictError):
        store.finish_upload(KEY, old, 3)


def test_a_folder_has_no_uploads_in_parts(tmp_path: Path):
    with pytest.raises(PlatformError, match="does not support uploads"):
        open_store(str(tmp_path)).begin_upload(KEY)
