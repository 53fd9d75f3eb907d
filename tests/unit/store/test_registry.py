from __future__ import annotations

import json
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import dmls_core.store.registry as registry_module
from dmls_core.errors import ConflictError, NotFoundError, StoreError
from dmls_core.store import DataObject, JobRecord, Registry, Store, layout, open_store, run_key
from dmls_core.testing.stores import race
from tests.unit.store.fakes import NOW, FakeSpec, data

DAMAGED = [b"", b"{", b"[]", b"{}", b'{"schema": 2}', b'{"schema": 1, "data": 3}', b"\xff"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


@pytest.fixture
def registry(store: Store) -> Registry:
    return Registry(store)


def accept(
    registry: Registry, content: str = "one", etag: str = "e1", name: str = "iris", **options: Any
) -> JobRecord:
    return registry.accept(
        FakeSpec(content), "growth", name, [data(etag, job=f"growth/{name}")], NOW, **options
    )


def test_accepting(registry: Registry, store: Store) -> None:
    spec = FakeSpec("one")
    vienna = NOW.astimezone(timezone(timedelta(hours=2)))
    record = registry.accept(
        spec, "growth", "iris", [data("e2", "b.csv"), data("e1", "a.csv")], vienna, "fingerprint"
    )
    assert record == JobRecord(
        team="growth",
        name="iris",
        spec_sha256=spec.sha256,
        data=(
            DataObject("incoming/growth/iris/a.csv", "e1", 10),
            DataObject("incoming/growth/iris/b.csv", "e2", 10),
        ),
        run_key=run_key(spec.sha256, ["e1", "e2"]),
        admitted="2026-05-04T03:02:01.123456+00:00",
        version=1,
        state="active",
        fingerprint="fingerprint",
    )
    assert record.admitted_at == NOW
    assert registry.job("growth", "iris") == record
    assert registry.spec(spec.sha256) == {"schema": 1, "content": "one"}
    assert store.get(layout.spec(spec.sha256)) == spec.canonical()
    assert json.loads(store.get("registry/jobs/growth/iris.json"))["schema"] == 1


def test_accepting_the_same_content_changes_nothing(registry: Registry, store: Store) -> None:
    first = accept(registry, fingerprint="a")
    before = store.head("registry/jobs/growth/iris.json")
    assert accept(registry, fingerprint="b") == first
    assert store.head("registry/jobs/growth/iris.json") == before


def test_versions_are_numbered_and_kept(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    assert registry.versions("growth", "iris") == []
    records = [
        accept(registry, content, etag)
        for content, etag in [("one", "e1"), ("two", "e1"), ("two", "e2"), ("two", "e2"), ("one", "e1")]
    ]
    assert [record.version for record in records] == [1, 2, 3, 3, 4]
    assert registry.versions("growth", "iris") == [records[4], records[2], records[1], records[0]]
    monkeypatch.setattr(registry_module, "MAX_VERSIONS", 2)
    assert registry.versions("growth", "iris") == [records[4], records[2]]


def test_a_failed_replacement_adds_no_version(
    registry: Registry, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise StoreError("unreachable")

    first = accept(registry)
    with monkeypatch.context() as patch:
        patch.setattr(store, "replace", unreachable)
        with pytest.raises(StoreError, match="unreachable"):
            accept(registry, "two")
    assert registry.versions("growth", "iris") == [first]
    second = accept(registry, "two")
    assert registry.versions("growth", "iris") == [second, first]


def test_retiring_and_submitting_again(registry: Registry) -> None:
    first = accept(registry)
    retired = registry.retire("growth", "iris")
    assert (retired.state, retired.version, retired.run_key) == ("retired", 1, first.run_key)
    assert registry.retire("growth", "iris") == retired
    assert registry.job("growth", "iris") == retired
    again = registry.accept(FakeSpec("one"), "growth", "iris", [data("e1")], NOW + timedelta(days=1))
    assert (again.state, again.version, again.run_key) == ("active", 2, first.run_key)
    assert again.admitted_at == NOW + timedelta(days=1)


def test_an_unknown_job(registry: Registry) -> None:
    assert registry.job("growth", "iris") is None
    assert registry.jobs() == []
    with pytest.raises(NotFoundError, match="growth/iris"):
        registry.retire("growth", "iris")


def test_concurrent_accepts_of_the_same_content(registry: Registry) -> None:
    records = race(
        8,
        lambda n: registry.accept(
            FakeSpec("one"), "growth", "iris", [data("e1")], NOW + timedelta(seconds=n)
        ),
    )
    assert len(set(records)) == 1
    assert records[0] == registry.job("growth", "iris")
    assert records[0].version == 1  # type: ignore[union-attr]


def test_concurrent_accepts_of_different_content(registry: Registry) -> None:
    records = race(6, lambda n: accept(registry, f"spec {n}"))
    versions = sorted(record.version for record in records if isinstance(record, JobRecord))
    assert versions == [1, 2, 3, 4, 5, 6]
    current = registry.job("growth", "iris")
    assert current
    assert current.version == 6
    assert registry.versions("growth", "iris") == sorted(records, key=lambda r: -r.version)  # type: ignore[union-attr]


def test_a_record_that_keeps_changing(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    accept(registry)

    def lose(*_: object) -> None:
        raise ConflictError("lost")

    monkeypatch.setattr(registry.store, "replace", lose)
    with pytest.raises(ConflictError, match="cannot accept growth/iris"):
        accept(registry, "two")
    with pytest.raises(ConflictError, match="cannot retire growth/iris"):
        registry.retire("growth", "iris")


def test_all_jobs_with_a_cache(registry: Registry, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        registry.accept(
            FakeSpec("x"), "growth", f"job-{number}", [data("e", job=f"growth/job-{number}")], NOW
        )
    reads: list[str] = []
    real = store.read
    monkeypatch.setattr(store, "read", lambda key, **k: reads.append(key) or real(key, **k))
    cache: dict[str, tuple[str, JobRecord]] = {}
    assert [record.name for record in registry.jobs(cache)] == [f"job-{number}" for number in range(5)]
    assert len(reads) == 5
    registry.accept(FakeSpec("y"), "growth", "job-3", [data("e", job="growth/job-3")], NOW)
    store.delete("registry/jobs/growth/job-0.json")
    reads.clear()
    assert [(record.name, record.version) for record in registry.jobs(cache)] == [
        ("job-1", 1), ("job-2", 1), ("job-3", 2), ("job-4", 1)
    ]  # fmt: skip
    assert reads == ["registry/jobs/growth/job-3.json"]


@pytest.mark.parametrize("document", DAMAGED)
def test_a_damaged_record_hides_no_other(
    registry: Registry, store: Store, document: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = accept(registry)
    store.put("registry/jobs/growth/bad.json", document)
    cache: dict[str, tuple[str, JobRecord]] = {}
    assert registry.jobs(cache) == [good]
    assert "registry/jobs/growth/bad.json" in caplog.text
    with pytest.raises(StoreError, match="damaged"):
        registry.job("growth", "bad")


def test_a_record_that_vanishes_during_the_listing(
    registry: Registry, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(registry)
    listed = list(store.list(layout.JOBS))
    store.delete("registry/jobs/growth/iris.json")
    monkeypatch.setattr(store, "list", lambda _: iter(listed))
    assert registry.jobs() == []


@pytest.mark.parametrize("hours", [-24, -1, 0, 24])
def test_a_later_version_is_admitted_later_even_if_the_clock_was_set_back(
    registry: Registry, hours: int
) -> None:
    first = accept(registry, "one")
    moved = NOW + timedelta(hours=hours)
    second = registry.accept(FakeSpec("two"), "growth", "iris", [data("e1")], moved)
    assert second.admitted_at == max(moved, first.admitted_at + timedelta(microseconds=1))


@pytest.mark.parametrize("document", DAMAGED)
def test_a_damaged_record_is_named_and_its_last_readable_state_stays(
    registry: Registry, store: Store, document: bytes
) -> None:
    good, cache, faults = accept(registry), {}, {"registry/jobs/old/one.json": "no longer there"}
    assert registry.jobs(cache, faults) == [good]
    assert faults == {}
    store.put("registry/jobs/growth/iris.json", document)
    assert registry.jobs(cache, faults) == [good]
    assert "registry/jobs/growth/iris.json" in faults["registry/jobs/growth/iris.json"]
    assert registry.jobs() == []


FOREIGN = [
    {"team": "victims"},
    {"name": "other"},
    {"data": [{"key": "incoming/victims/iris/a.csv", "etag": "e", "size": 1}]},
    {"data": [{"key": "registry/jobs/growth/iris.json", "etag": "e", "size": 1}]},
    {"team": ["growth"]},
    {"version": "1"},
    {"admitted": "today"},
]


@pytest.mark.parametrize("change", FOREIGN, ids=str)
def test_a_record_that_names_another_job_or_its_data_is_refused(
    registry: Registry, store: Store, change: dict[str, Any]
) -> None:
    accept(registry)
    second = accept(registry, "two")
    for key in ("registry/jobs/growth/iris.json", "registry/versions/growth/iris/00000001.json"):
        store.put(key, json.dumps(json.loads(store.get(key)) | change).encode())
    assert registry.jobs() == []
    with pytest.raises(StoreError, match="damaged"):
        registry.job("growth", "iris")
    store.put("registry/jobs/growth/iris.json", json.dumps(second.as_json()).encode())
    assert registry.versions("growth", "iris") == [second]


def test_an_admission_is_postponed_once(registry: Registry) -> None:
    first = accept(registry)
    later = registry.postpone(first, NOW + timedelta(days=1))
    assert later is not None
    assert (later.version, later.run_key) == (first.version, first.run_key)
    assert later.admitted_at == NOW + timedelta(days=1, microseconds=1)
    assert registry.job("growth", "iris") == later
    assert registry.postpone(first, NOW + timedelta(days=2)) is None, "this record is no longer current"


def test_a_damaged_spec_is_an_error(registry: Registry, store: Store) -> None:
    record = accept(registry)
    store.put(layout.spec(record.spec_sha256), b'{"schema": 1}')
    with pytest.raises(StoreError, match="damaged"):
        registry.spec(record.spec_sha256)


def test_json_round_trip() -> None:
    record = JobRecord("t", "n", "s", (DataObject("k", "e", 1),), "r", NOW.isoformat(), 3, "retired", "f")
    assert JobRecord.from_json(json.loads(json.dumps(record.as_json()))) == record


def test_every_change_of_a_record_is_marked(registry: Registry) -> None:
    marks = [registry.change_mark()]
    first = accept(registry)
    marks.append(registry.change_mark())
    second = accept(registry, etag="e2")
    marks.append(registry.change_mark())
    registry.postpone(second, NOW + timedelta(days=1))
    marks.append(registry.change_mark())
    registry.retire("growth", "iris")
    marks.append(registry.change_mark())
    assert marks[0] == ""
    assert len({*marks}) == 5
    registry.retire("growth", "iris")
    registry.postpone(first, NOW)
    assert registry.change_mark() == marks[-1]


def test_changes_are_named_in_their_order_whoever_writes(registry: Registry, store: Store) -> None:
    race(6, lambda n: accept(registry, f"spec {n}", name=f"job{n}"))
    registry.retire("growth", "job3")
    changes = list(registry.changes().values())
    assert sorted(changes[:-1]) == [f"registry/jobs/growth/job{n}.json" for n in range(6)]
    assert changes[-1] == "registry/jobs/growth/job3.json"
    store.put("registry/change.json", b'{"schema": 1, "change": "of an earlier release"}')
    assert registry.changes() == {}
    registry.retire("growth", "job4")
    assert list(registry.changes().values()) == ["registry/jobs/growth/job4.json"]


def test_the_latest_changes_are_named(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dmls_core.store.registry.MAX_CHANGES", 3)
    for number in range(5):
        accept(registry, name=f"job{number}")
    assert [key[-6] for key in registry.changes().values()] == ["2", "3", "4"]


def test_writers_that_cannot_name_a_change_forget_those_before(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept(registry)
    before = registry.changes()

    def conflict(*_: object) -> None:
        raise ConflictError("another writer was faster")

    monkeypatch.setattr(registry.store, "replace", conflict)
    accept(registry, name="wine")
    after = registry.changes()
    assert list(after.values()) == ["registry/jobs/growth/wine.json"]
    assert not before.keys() & after.keys()
