from __future__ import annotations

import io
import itertools
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import boto3
import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from botocore.response import StreamingBody
from botocore.utils import parse_timestamp
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
from urllib3.exceptions import ProtocolError

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError
from dmls_core.monitoring.jobs import monitored_jobs
from dmls_core.store import Registry, Store, open_store
from dmls_core.store.registry import cached
from dmls_core.store.s3 import S3Store
from dmls_core.store.s3_client import CONNECTIONS, INTERACTIVE, make_client, parse_time, prepare_session
from dmls_core.testing.stores import StoreSuite, run_coroutine
from tests.unit.store.fakes import NOW, AsyncHook, FakeSpec

if TYPE_CHECKING:
    from moto.core.common_types import TYPE_RESPONSE
    from mypy_boto3_s3 import S3Client


put_lock = threading.Lock()
put_object = S3Response.put_object


def put_object_alone(response: S3Response) -> TYPE_RESPONSE:
    """Check the condition and write in one step, as S3 does: Moto's threads do these one after the other."""
    with put_lock:
        return put_object(response)


@pytest.fixture(scope="module")
def client() -> Iterator[S3Client]:
    """A client of a mock server, made as the store makes it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key-id-of-the-test",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-test",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }.items():
            patch.setenv(name, value)
        patch.setattr(S3Response, "put_object", put_object_alone)
        yield make_client()
    server.stop()


@pytest.fixture
def store(client: S3Client) -> S3Store:
    bucket = f"test-{uuid.uuid4().hex[:12]}"
    client.create_bucket(Bucket=bucket)
    return S3Store(bucket, "some/prefix", client)


def test_erase_deletes_all_versions_of_an_object_and_of_no_other(client: S3Client, store: S3Store):
    client.put_bucket_versioning(Bucket=store.bucket, VersioningConfiguration={"Status": "Enabled"})
    for key, content in (("run/key", b"old"), ("run/key", b"new"), ("run/key-2", b"other")):
        store.put(key, content)
    store.delete("run/key")
    store.erase("run/key")
    found = client.list_object_versions(Bucket=store.bucket)
    assert [version["Key"] for version in found["Versions"]] == ["some/prefix/run/key-2"]
    assert "DeleteMarkers" not in found


class TestS3Store(StoreSuite):
    ROUNDS = 3
    KEYS = 60

    @pytest.fixture(autouse=True)
    def _small_pages(self, client: S3Client) -> Iterator[None]:
        def limit(params: dict[str, object], **_: object) -> None:
            params.setdefault("MaxKeys", 50)

        event = "before-parameter-build.s3.ListObjectsV2"
        client.meta.events.register(event, limit)
        yield
        client.meta.events.unregister(event, limit)

    @pytest.fixture
    def store(self, store: S3Store) -> Store:
        return store


def test_all_keys_are_below_the_prefix(store: S3Store) -> None:
    store.put("a/b", b"x")
    store.client.put_object(Bucket=store.bucket, Key="some/prefixed", Body=b"y")
    assert store.url == f"s3://{store.bucket}/some/prefix"
    assert store.client.head_object(Bucket=store.bucket, Key="some/prefix/a/b")["ContentLength"] == 1
    assert [info.key for info in store.list("")] == ["a/b"]
    whole = S3Store(store.bucket, client=store.client)
    assert {info.key for info in whole.list("")} == {"some/prefix/a/b", "some/prefixed"}


def test_content_types(store: S3Store) -> None:
    store.put("status.md", b"x")
    store.create("record.json", b"{}")
    store.put("odd", b"x", content_type="text/x-odd")
    types = {
        key: store.client.head_object(Bucket=store.bucket, Key=f"some/prefix/{key}")["ContentType"]
        for key in ("status.md", "record.json", "odd")
    }
    assert types == {
        "status.md": "text/markdown; charset=utf-8",
        "record.json": "application/json",
        "odd": "text/x-odd",
    }


def test_many_parts(store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmls_core.store.s3.LARGE", 8 << 20)
    monkeypatch.setattr("dmls_core.store.s3.TRANSFER.multipart_threshold", 8 << 20)
    monkeypatch.setattr("dmls_core.store.s3.TRANSFER.multipart_chunksize", 5 << 20)
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * (48 << 10))
    written = store.upload("big", source)
    assert written.etag.endswith("-3")
    read = store.download("big", tmp_path / "target", etag=written.etag)
    assert read == store.head("big")
    assert (tmp_path / "target").read_bytes() == source.read_bytes()
    with pytest.raises(ConflictError):
        store.download("big", tmp_path / "other", etag="0" * 32)
    assert not (tmp_path / "other").exists()


def test_a_full_disk_is_a_store_error(
    store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    store.put("k", b"x")
    monkeypatch.setattr("dmls_core.store.s3.shutil.copyfileobj", fail)
    with pytest.raises(StoreError, match="No space left on device"):
        store.download("k", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="No such file"):
        store.upload("k", tmp_path / "none")


def test_objects_of_other_clients_are_read(store: S3Store, tmp_path: Path) -> None:
    store.client.put_object(Bucket=store.bucket, Key="some/prefix/theirs", Body=b"content")
    assert store.get("theirs") == b"content"
    assert store.download("theirs", tmp_path / "x").size == 7


def test_damaged_content_is_detected(store: S3Store, tmp_path: Path) -> None:
    store.put("k", b"good")
    at = {"Bucket": store.bucket, "Key": "some/prefix/k"}
    metadata = store.client.head_object(**at)["Metadata"]
    store.client.put_object(**at, Body=b"evil", Metadata=metadata)
    with pytest.raises(StoreError, match="SHA-256"):
        store.get("k")
    with pytest.raises(StoreError, match="SHA-256"):
        store.download("k", tmp_path / "k")
    assert list(tmp_path.iterdir()) == []


def test_a_conditional_write_with_a_lost_response_recognizes_itself(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = store.client.put_object

    def answer_lost(**arguments: object) -> object:
        real(**arguments)  # type: ignore[arg-type]
        return real(**arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store.client, "put_object", answer_lost)
    created = store.create("k", b"mine")
    assert created == store.head("k")
    replaced = store.replace("k", b"mine too", created.etag)
    assert replaced == store.head("k")
    monkeypatch.undo()
    with pytest.raises(ConflictError):
        store.create("k", b"mine too")


class _Breaking:
    """A body that breaks after some bytes."""

    def __init__(self, content: bytes, after: int) -> None:
        self._stream = io.BytesIO(content[:after])

    def read(self, amount: int) -> bytes:
        if data := self._stream.read(amount):
            return data
        raise ProtocolError("connection broken")

    def close(self) -> None:
        pass


def _break(store: S3Store, monkeypatch: pytest.MonkeyPatch, after: int, times: int) -> list[str]:
    real = store.client.get_object
    ranges: list[str] = []
    left = itertools.count(times, -1)

    def get_object(**arguments: str) -> object:
        ranges.append(arguments.get("Range", ""))
        response = real(**arguments)  # type: ignore[arg-type]
        if next(left) > 0:
            body = _Breaking(response["Body"].read(), after)
            response["Body"] = StreamingBody(body, None)  # type: ignore[arg-type]
        return response

    monkeypatch.setattr(store.client, "get_object", get_object)
    return ranges


def test_a_broken_connection_is_resumed(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("k", b"0123456789")
    ranges = _break(store, monkeypatch, after=3, times=3)
    assert store.get("k") == b"0123456789"
    assert ranges == ["", "bytes=3-9", "bytes=6-9", "bytes=9-9"]


def test_a_connection_that_keeps_breaking_is_an_error(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store.put("k", b"0123456789")
    _break(store, monkeypatch, after=1, times=99)
    with pytest.raises(StoreError, match=r"some/prefix/k: the connection broke 4 times"):
        store.download("k", tmp_path / "k")
    assert list(tmp_path.iterdir()) == []


def test_content_that_changes_during_a_read_is_an_error(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("k", b"0123456789")
    _break(store, monkeypatch, after=3, times=1)
    with store.open("k") as stream:
        store.put("k", b"abcdefghij")
        with pytest.raises(ConflictError):
            stream.read()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("NoSuchBucket", "the bucket does not exist"),
        ("AccessDenied", "access denied; grant"),
        ("InvalidAccessKeyId", "the credentials are not accepted"),
        ("SlowDown", "overloaded"),
        ("Odd", "the service responded Odd"),
    ],
)
def test_errors_name_the_failure_and_the_fix(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    def fail(**_: object) -> None:
        message = "key-id-of-the-test was refused"
        raise ClientError({"Error": {"Code": code, "Message": message}}, "GetObject")

    store.put("a/b.json", b"1")  # a missing object is missing, also for credentials that may not read it
    monkeypatch.setattr(store.client, "get_object", fail)
    with pytest.raises(StoreError) as caught:
        store.get("a/b.json")
    assert f"cannot read s3://{store.bucket}/some/prefix/a/b.json: " in str(caught.value)
    assert words in str(caught.value)
    assert "of-the-test" not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NoCredentialsError(), "set AWS_ACCESS_KEY_ID"),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), "AWS_ENDPOINT_URL"),
    ],
)
def test_errors_before_any_response(
    store: S3Store, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(store.client, "head_object", fail)
    with pytest.raises(StoreError, match=words):
        store.head("k")


def test_a_missing_bucket(store: S3Store) -> None:
    missing = S3Store("there-is-no-such-bucket", "", store.client)
    for call in (lambda: list(missing.list("")), lambda: missing.get("k"), lambda: missing.put("k", b"")):
        with pytest.raises(StoreError, match="the bucket does not exist") as caught:
            call()
        assert not isinstance(caught.value, ObjectMissingError)


def test_a_service_that_does_not_respond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    with pytest.raises(StoreError, match="no response from the service"):
        open_store("s3://bucket/p").head("k")


def test_a_url_with_the_scheme_s3_opens_this_store() -> None:
    store = open_store("s3://bucket/some/prefix/")
    assert isinstance(store, S3Store)
    assert store.url == "s3://bucket/some/prefix"


def test_boto3_is_imported_only_for_s3() -> None:
    script = (
        "import sys, dmls_core.store, dmls_core.intake; dmls_core.store.open_store('/nonexistent');"
        "print([name for name in ('boto3', 'botocore', 'numpy', 'pydantic') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "text", ["2026-11-21T07:04:17.123Z", "2026-11-21T07:04:17Z", "Sat, 21 Nov 2026 07:04:17 GMT", 1795244657]
)
def test_timestamps_are_read_as_botocore_reads_them(text: str | float) -> None:
    assert parse_time(text) == parse_timestamp(text)
    assert parse_time(text).utcoffset() == timedelta(0)


class _Hook:
    """What ``S3Store`` uses of Airflow's ``S3Hook``."""

    def __init__(self, aws_conn_id: str = "aws_default", config: Config | None = None) -> None:
        self.aws_conn_id = aws_conn_id
        self.config = config or Config(user_agent="theirs")
        self.region_name = "eu-central-1"
        self.conn_config = SimpleNamespace(endpoint_url="http://s3.example:8333")

    def get_session(self, region_name: str | None = None) -> boto3.session.Session:
        return boto3.session.Session("key", "secret", region_name=region_name)

    def get_conn(self) -> S3Client:
        return self.get_session(region_name=self.region_name).client("s3", config=self.config)

    def get_credentials(self) -> SimpleNamespace:
        return SimpleNamespace(access_key="key", secret_key="secret", token=None)


def test_a_hook_gives_the_client_and_the_variables_of_trainers() -> None:
    store = open_store("s3://bucket/prefix", hook=_Hook(), interactive=True)
    assert isinstance(store, S3Store)
    assert store.client.meta.config.user_agent.startswith("theirs")
    assert store.client.meta.config.read_timeout == INTERACTIVE["read_timeout"]
    parser = store.client._endpoint._response_parser_factory.create_parser("rest-xml")
    assert parser._timestamp_parser is parse_time
    other = open_store("s3://bucket/prefix", hook=_Hook())
    assert isinstance(other, S3Store)
    assert other.client.meta.config.max_pool_connections == CONNECTIONS, "threads do not discard connections"
    assert store.trainer_environment() == {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": "http://s3.example:8333",
    }


def test_sessions_share_what_boto_parses_to_make_a_client() -> None:
    first, second = (prepare_session(boto3.session.Session())._session for _ in range(2))
    assert first.get_component("data_loader") is second.get_component("data_loader")
    assert first.get_available_services() == botocore.session.get_session().get_available_services()


def test_without_a_hook_trainers_get_the_variables_of_this_process(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert store.trainer_environment()["AWS_PROFILE"] == "team"


def test_a_hook_lists_with_one_asynchronous_client(store: S3Store) -> None:
    opened: list[str] = []

    async def two_listings() -> list[list[str]]:
        watched, seen = S3Store(store.bucket, "some/prefix", hook=AsyncHook(store.client, opened)), []
        async with aclosing(watched.watch("in/", poll_seconds=0.01)) as listings:
            async for listing in listings:
                seen.append([info.key for info in listing])
                store.put("in/a", b"1")
                if len(seen) == 2:
                    break
        return seen

    assert run_coroutine(two_listings()) == [[], ["in/a"]]
    assert opened == ["client"]


def test_records_that_are_known_from_elsewhere_have_the_etags_of_s3(store: S3Store) -> None:
    known = [Registry(store).accept(FakeSpec("one"), "lab", name, [], NOW) for name in ("a", "b")]
    listed = {info.key: info.etag for info in store.list("registry/jobs/")}
    assert {key: etag for key, (etag, _) in cached(known).items()} == listed


def test_the_monitor_reads_only_what_has_changed_since_the_jobs_were_known(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(store)
    known = [(registry.accept(FakeSpec("one"), "lab", name, [], NOW), {"drift": {}}) for name in ("a", "b")]
    changed = registry.accept(FakeSpec("two"), "lab", "b", [], NOW)
    keys: list[str] = []
    read = S3Store.read
    monkeypatch.setattr(
        S3Store, "read", lambda self, key, **more: keys.append(key) or read(self, key, **more)
    )
    monkeypatch.setattr(Registry, "spec", lambda _, sha256: keys.append(sha256) or {"drift": None})

    assert [str(job) for job in monitored_jobs(store, known)] == ["lab/a"]
    assert keys == ["registry/jobs/lab/b.json", changed.spec_sha256]
