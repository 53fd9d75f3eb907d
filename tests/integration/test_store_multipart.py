"""Uploads in parts, against a real S3 server."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from dmls_core.errors import ConflictError, PlatformError
from dmls_core.store import Store, open_store
from dmls_core.store.multipart import LEAST_PART, abort_upload, begin_upload, finish_upload, upload_part
from tests.services.seaweed import S3Server

KEY = "incoming/lab/parts/data.csv"
PARTS = (b"a" * LEAST_PART, b"b" * LEAST_PART, b"end")


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    return s3_server.bucket()


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> Store:
    return open_store(f"s3://{bucket}/{uuid.uuid4().hex}", client=s3_server.client())


def test_parts_in_any_order_and_sent_twice_make_one_object(store: Store):
    upload = begin_upload(store, KEY)
    for number in (3, 1, 2, 1):
        upload_part(store, KEY, upload, number, PARTS[number - 1])
    assert store.head(KEY) is None

    finish_upload(store, KEY, upload, sum(map(len, PARTS)))

    assert store.get(KEY) == b"".join(PARTS)


def test_a_file_that_is_not_complete_stays_out_of_sight(store: Store):
    upload = begin_upload(store, KEY)
    upload_part(store, KEY, upload, 2, PARTS[2])

    for size in (len(PARTS[2]), 5):
        with pytest.raises(ConflictError, match="not complete"):
            finish_upload(store, KEY, upload, size)
    assert store.head(KEY) is None


def test_an_upload_that_was_given_up_is_gone(store: Store):
    upload = begin_upload(store, KEY)
    abort_upload(store, KEY, upload)
    abort_upload(store, KEY, upload)

    with pytest.raises(ConflictError, match="send the file again"):
        upload_part(store, KEY, upload, 1, b"late")


def test_a_new_upload_gives_the_old_one_up(store: Store):
    old = begin_upload(store, KEY)
    upload_part(store, KEY, old, 1, b"old")

    new = begin_upload(store, KEY)
    upload_part(store, KEY, new, 1, b"new")
    finish_upload(store, KEY, new, 3)

    assert store.get(KEY) == b"new"
    with pytest.raises(ConflictError):
        finish_upload(store, KEY, old, 3)


def test_a_folder_takes_no_uploads(tmp_path: Path):
    with pytest.raises(PlatformError, match="folder"):
        begin_upload(open_store(str(tmp_path)), KEY)
