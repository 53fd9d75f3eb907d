"""The store, the registry and the intake on a real S3 server."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from dmls_core.devstack.seaweedfs import TRAINER_ROLE
from dmls_core.errors import StoreError
from dmls_core.intake import admit, find_submissions, read_status, submit, update_run_status
from dmls_core.store import Access, ObjectInfo, Registry, Store, open_store, s3_listing
from dmls_core.store.s3 import S3Store
from dmls_core.testing.stores import StoreSuite, race, run_coroutine
from tests.services.seaweed import S3Server, Seaweed
from tests.unit.intake.uploads import CSV, SPEC, drop
from tests.unit.store.fakes import AsyncHook, FakeSpec, data

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@pytest.fixture
def store(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return open_store(f"s3://{s3_server.bucket()}/some/prefix")


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> str:
    """One bucket for many tests: SeaweedFS takes a second or two for the first object of each."""
    return s3_server.bucket()


class TestSeaweed(StoreSuite):
    LARGE = 70 << 20
    RACERS = 6
    ROUNDS = 3  # a lost race costs SeaweedFS a second or two

    @pytest.fixture
    def store(self, s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Store:
        for name, value in s3_server.environment.items():
            monkeypatch.setenv(name, value)
        return open_store(f"s3://{bucket}/{uuid.uuid4().hex}")


class TestWithDefaultsOfBoto3:
    """A client such as an Airflow connection's: path or host addressing and checksums as boto3 likes them."""

    @pytest.fixture
    def store(self, s3_server: S3Server) -> Store:
        return S3Store(s3_server.bucket(), client=s3_server.client())

    def test_it_passes_the_main_tests(self, store: Store, tmp_path: Path) -> None:
        suite = StoreSuite()
        suite.LARGE = 70 << 20
        suite.test_put_then_read(store)
        suite.test_upload_and_download(store, tmp_path)
        suite.test_replace_what_was_read(store)
        suite.test_streaming(store)


def test_parts_of_a_listing_are_the_whole_whatever_changes_between_two(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_listing, "PAGE", 2)
    monkeypatch.setattr(s3_listing, "PART", 3)
    # SeaweedFS sorts these folder by folder, S3 by all of the key.
    names = ["a", "a-b", "a.b", "a/b", "a/b-c", "ab", "b/a", "b-/a", "c"]
    for name in names:
        for file in ("data.csv", "spec.toml"):
            store.put(f"in/{name}/{file}", b"1")
    chosen = random.Random(1)

    async def listings() -> int:
        watched, count = S3Store(store.bucket, "some/prefix", hook=AsyncHook(store.client, [])), 0
        async with aclosing(watched.watch("in/", poll_seconds=0.0)) as found:
            async for listing in found:
                expected = sorted(info.key for info in store.list("in/"))
                assert sorted(info.key for info in listing) == expected
                count += 1
                if count == 12:
                    return count
                for key in chosen.sample(expected, 2):
                    store.delete(key)
                store.put(f"in/{chosen.choice(names)}/new{count}", b"1")
        return count

    assert run_coroutine(listings()) == 12


def test_a_page_that_has_not_changed_is_not_parsed_again(
    store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_listing, "PAGE", 2)
    monkeypatch.setattr(s3_listing, "PART", 4)
    for number in range(10, 30):
        store.put(f"in/{number}&é<", b"1")
    parsed = []

    def info(item: Mapping[str, Any]) -> ObjectInfo:
        parsed.append(item["Key"])
        return store._listed(item)

    client = AsyncHook(store.client, []).client()
    listing = s3_listing.RepeatedListing(client, store.bucket, "some/prefix/in/", info)

    async def count() -> int:
        parsed.clear()
        assert sorted(map(str, await listing.objects())) == sorted(map(str, store.list("in/")))
        return len(parsed)

    async def counts() -> list[int]:
        found = [await count(), await count(), await count()]
        store.put("in/13b", b"1")
        found.append(await count())
        store.put("in/20&é<", b"2")
        return [*found, await count()]

    first, in_parts, again, *changed = run_coroutine(counts())
    assert first == 20
    assert again == 0
    assert all(0 < number < 12 for number in changed), (in_parts, changed)


def test_memory_stays_bounded(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.truncate(256 << 20)
    script = """
import resource, sys
from pathlib import Path
from dmls_core.store import open_store
store = open_store(sys.argv[1])
store.put("warm", b"x")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
store.upload("large", Path(sys.argv[2]))
store.download("large", Path(sys.argv[2] + ".back"))
with store.open("large") as stream:
    while stream.read(1 << 20):
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    command = [sys.executable, "-c", script, store.url, str(source)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(answer.stdout) < 160 << 10  # KiB, while 256 MiB move three times


def test_concurrent_accepts_create_one_version(store: Store) -> None:
    now = datetime.now(UTC)
    for turn in range(3):
        records: list[Any] = race(
            6,
            lambda n, turn=turn: Registry(store).accept(
                FakeSpec("x"),
                "growth",
                f"job-{turn}",
                [data("e", job=f"growth/job-{turn}")],
                now + timedelta(seconds=n),
            ),
        )
        assert len(set(records)) == 1, records
        assert records[0].version == 1
        assert Registry(store).job("growth", f"job-{turn}") == records[0]


def test_versions_have_no_gaps(store: Store) -> None:
    registry = Registry(store)
    records: list[Any] = race(
        4, lambda n: registry.accept(FakeSpec(f"{n}"), "growth", "iris", [data("e")], datetime.now(UTC))
    )
    assert sorted(record.version for record in records) == [1, 2, 3, 4]
    assert registry.jobs() == [record for record in records if record.version == 4]


def test_from_submission_to_answer(store: Store, tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_bytes(SPEC)
    (tmp_path / "iris.csv").write_bytes(CSV)
    submit(store, tmp_path / "spec.toml", [tmp_path / "iris.csv"], "growth", "iris")
    outcomes: list[Any] = race(4, lambda _: admit(store, "growth", "iris"))
    assert {(outcome.state, outcome.record.version) for outcome in outcomes} == {("accepted", 1)}
    run_key = outcomes[0].record.run_key
    assert update_run_status(store, "growth", "iris", run_key, "running", "Training 3/5")
    drop(store, {"spec.toml": SPEC.replace(b"species", b"kind")})
    assert admit(store, "growth", "iris").state == "rejected"
    assert not update_run_status(store, "growth", "iris", run_key, "running", "Training 4/5")
    status = read_status(store, "growth", "iris")
    assert status
    assert status.errors[0].key == "columns.target"


def test_invalid_names_are_answered_in_their_folders(s3_server: S3Server, store: Store) -> None:
    client = s3_server.client()
    bucket = store.url.removeprefix("s3://").partition("/")[0]
    folders = [
        "Growth/iris",
        "growth/my job",
        "%2e%2e/iris",
        "growth/\uff49ris",
        "growth/iris/deep/er",
        "growth",
    ]
    for folder in folders:
        client.put_object(Bucket=bucket, Key=f"some/prefix/incoming/{folder}/spec.toml", Body=SPEC)
    client.put_object(Bucket=bucket, Key="some/prefix/incoming/a\nb/x/spec.toml", Body=SPEC)
    drop(store, {"spec.toml": SPEC, "iris.csv": CSV}, job="good")
    states = {
        (found.team, found.job): admit(store, found.team, found.job).state
        for found in find_submissions(store)
    }
    assert states.pop(("growth", "good")) == "accepted"
    assert set(states.values()) == {"rejected"}
    assert len(states) == len(folders) + 1
    for folder in folders:
        answer = client.get_object(Bucket=bucket, Key=f"some/prefix/incoming/{folder}/_status.json")
        assert json.loads(answer["Body"].read())["state"] == "rejected"
    assert [record.name for record in Registry(store).jobs()] == ["good"]


def test_the_server_requires_credentials(s3_server: S3Server, store: Store) -> None:
    store.put("k", b"x")
    bucket = store.url.removeprefix("s3://").partition("/")[0]
    anonymous = boto3.session.Session().client(
        "s3",
        endpoint_url=s3_server.endpoint_url,
        region_name="us-east-1",
        config=Config(signature_version=UNSIGNED),
    )
    for call in (
        lambda: anonymous.list_objects_v2(Bucket=bucket),
        lambda: anonymous.get_object(Bucket=bucket, Key="some/prefix/k"),
        lambda: anonymous.put_object(Bucket=bucket, Key="x", Body=b""),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call()


def test_wrong_credentials(s3_server: S3Server, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match="the credentials are not accepted") as caught:
        open_store(store.url).put("k", b"")
    assert s3_server.access_key not in str(caught.value)


def test_accepted_versions_survive_a_killed_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seaweed = Seaweed(tmp_path)
    server = seaweed.start()
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        store = open_store(f"s3://{server.bucket()}")
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        record = admit(store, "growth", "iris").record
        seaweed.kill()
        seaweed.start()
        assert record
        assert Registry(store).job("growth", "iris") == record
        assert store.get("incoming/growth/iris/iris.csv") == CSV
        assert admit(store, "growth", "iris").record == record
        with pytest.raises((urllib.error.HTTPError, ConnectionError)):
            urllib.request.urlopen(f"http://127.0.0.1:{seaweed.filer_port}/", timeout=5)
    finally:
        seaweed.kill()


def test_a_trainers_credentials_reach_its_run_and_nothing_else(s3_server: S3Server, store: Store) -> None:
    run, others = (
        "runs/shop/sales/k1/",
        ("runs/shop/sales/k2/x", "incoming/lab/iris/d", "registry/jobs/a/b.json"),
    )
    for key in (f"{run}x", "incoming/shop/sales/d", *others):
        store.put(key, b"1")
    access = Access(read=("incoming/shop/sales/", "runs/shop/sales/"), write=(run,))
    given = store.limited_environment(TRAINER_ROLE, access, "dmls-k1")
    bucket, _, prefix = store.url.removeprefix("s3://").partition("/")
    session = {name.lower(): given[name] for name in given if name in CREDENTIALS}
    client = boto3.client("s3", endpoint_url=s3_server.endpoint_url, region_name="us-east-1", **session)
    limited = S3Store(bucket, prefix, client)

    assert limited.get("incoming/shop/sales/d") == limited.get(others[0]) == b"1"
    assert [found.key for found in limited.list(run)] == [f"{run}x"]
    assert limited.head(f"{run}missing") is None
    limited.create(f"{run}y", b"2")
    limited.delete(f"{run}x")
    for key in others[1:]:
        with pytest.raises(StoreError, match="access denied"):
            limited.get(key)
    for key in ("incoming/shop/sales/d", *others):
        for write in (limited.put, limited.create):
            with pytest.raises(StoreError, match="access denied"):
                write(key, b"2")
        with pytest.raises(StoreError, match="access denied"):
            limited.delete(key)
        with pytest.raises(ClientError, match="Access ?Denied"):
            client.create_multipart_upload(Bucket=bucket, Key=f"{prefix}/{key}")
        source = {"Bucket": bucket, "Key": f"{prefix}/{others[1]}"}
        with pytest.raises(ClientError, match="Access ?Denied"):
            client.copy_object(Bucket=bucket, Key=f"{prefix}/{run}copy", CopySource=source)
    for other in ("", "runs/", "incoming/lab/"):
        with pytest.raises(StoreError, match="access denied"):
            list(limited.list(other))
    for service, call in (("sts", "get_session_token"), ("iam", "list_users")):
        again = boto3.client(service, endpoint_url=s3_server.endpoint_url, region_name="us-east-1", **session)
        with pytest.raises(ClientError):
            getattr(again, call)()
    sts = boto3.client("sts", endpoint_url=s3_server.endpoint_url, region_name="us-east-1", **session)
    with pytest.raises(ClientError, match="AccessDenied"):
        sts.assume_role(RoleArn=TRAINER_ROLE, RoleSessionName="again")
    assert all(store.get(key) == b"1" for key in ("incoming/shop/sales/d", *others))
