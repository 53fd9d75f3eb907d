from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_core.errors import ConflictError, ValidationIssue
from dmls_core.intake import Status, read_status, update_run_status, write_status
from dmls_core.intake.status import NOT_DEPLOYED, escape, status_page
from dmls_core.store import Registry, Store, open_store
from tests.unit.store.fakes import FakeSpec, data

KEY = "incoming/growth/iris/_status.json"
PAGE = "incoming/growth/iris/_status.md"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


@pytest.fixture
def run_key(store: Store) -> str:
    record = Registry(store).accept(
        FakeSpec("one"), "growth", "iris", [data("e")], datetime.now(UTC), "accepted drop"
    )
    return record.run_key


def answer(store: Store) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(store.get(KEY))
    return content


def test_the_form_of_the_design(store: Store) -> None:
    issue = ValidationIssue(
        "m", hint="h", file="spec.toml", line=3, column=1, key="a.b", found="f", expected="e"
    )
    write_status(store, "growth", "iris", "rejected", "no", errors=[issue], fingerprint="f")
    content = answer(store)
    assert datetime.fromisoformat(content.pop("updated")).tzinfo
    assert content == {
        "schema": 1,
        "state": "rejected",
        "message": "no",
        "errors": [
            {
                "file": "spec.toml",
                "line": 3,
                "column": 1,
                "key": "a.b",
                "message": "m",
                "hint": "h",
                "found": "f",
                "expected": "e",
            }
        ],
        "job": "growth/iris",
        "run_key": None,
        "notes": [],
        "links": {},
        "fingerprint": "f",
        "run": "",
        "served": None,
        "environment": "",
    }
    page = store.get(PAGE).decode()
    assert "# growth/iris: rejected" in page
    assert "| spec.toml, line 3, column 1 (a.b) | m; found: f; expected: e | h |" in page


def test_an_answer_of_many_and_long_errors_can_be_read_back(store: Store) -> None:
    many = [
        ValidationIssue(f"the column 'feature_{n:05}' is not in the file", found="x" * 200)
        for n in range(6_000)
    ]
    write_status(store, "growth", "iris", "rejected", "no", errors=many)
    status = read_status(store, "growth", "iris")
    assert status
    *shown, more = status.errors
    assert shown == many[: len(shown)]
    assert more.message == f"and {len(many) - len(shown):,} more issues"
    # A column's name may be as long as the file's beginning.
    long = ValidationIssue(repr("\U000e0001" * 60_000))
    write_status(store, "growth", "iris", "rejected", str(long), errors=[long] * 2)
    status = read_status(store, "growth", "iris")
    assert status
    assert len(status.errors) == 2
    assert len(status.message) < 6_000


def test_what_says_the_same_is_left_untouched(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_status(store, "growth", "iris", "waiting", "for data")
    monkeypatch.setattr(store, "put", None)
    assert write_status(store, "growth", "iris", "waiting", "for data") == first
    assert read_status(store, "growth", "iris") == first


def test_the_last_writer_wins(store: Store) -> None:
    write_status(store, "growth", "iris", "waiting", "for data", links={"a": "http://x"})
    write_status(store, "growth", "iris", "rejected", "no")
    assert answer(store)["state"] == "rejected"
    assert answer(store)["links"] == {}
    assert "rejected" in store.get(PAGE).decode()


def test_a_call_cut_off_is_made_good_by_the_next(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write_status(store, "growth", "iris", "waiting", "for data")
    real = store.put

    def put(key: str, content: bytes) -> object:
        if key == KEY:
            raise KeyboardInterrupt
        return real(key, content)

    monkeypatch.setattr(store, "put", put)
    with pytest.raises(KeyboardInterrupt):
        write_status(store, "growth", "iris", "rejected", "no")
    monkeypatch.undo()
    write_status(store, "growth", "iris", "rejected", "no")
    assert answer(store)["state"] == "rejected"
    assert "rejected" in store.get(PAGE).decode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"schema": 2}',
        b'{"schema": 1}',
        b"\xff",
        b"[" * 100_000,
        b'{"schema": 1, "state": "x"}',
    ],
)
def test_what_users_write_there_does_no_harm(store: Store, content: bytes) -> None:
    store.put(KEY, content)
    assert read_status(store, "growth", "iris") is None


@pytest.mark.parametrize(
    "change",
    [
        {"errors": ["no table"]},
        {"errors": [{"message": 5}]},
        {"errors": [{"message": "m", "line": "3"}]},
        {"message": 5},
        {"message": "half of a pair: \ud800"},
        {"links": {"page": 5}},
        {"run_key": ["a"]},
        {"updated": "yesterday"},
        {"updated": "0001-01-01T00:00:00+14:00"},
    ],
)
def test_nor_does_what_users_change_in_an_answer(store: Store, change: dict[str, Any]) -> None:
    write_status(store, "growth", "iris", "waiting", "for data", errors=[ValidationIssue("m", line=3)])
    assert read_status(store, "growth", "iris") is not None
    store.put(KEY, json.dumps(answer(store) | change).encode())
    assert read_status(store, "growth", "iris") is None
    write_status(store, "growth", "iris", "waiting", "for data")
    assert answer(store)["state"] == "waiting"


def test_a_run_of_an_earlier_release_that_deployed_nothing_is_trained(store: Store) -> None:
    message = NOT_DEPLOYED.format(version=3, reason="declined by ann")
    for text, state in ((message, "trained"), ("Accepted as version 1", "accepted")):
        write_status(store, "growth", "iris", "accepted", text)
        status = read_status(store, "growth", "iris")
        assert status
        assert (status.state, status.message) == (state, text)


class TestRunStatus:
    def test_it_follows_the_run(self, store: Store, run_key: str) -> None:
        write_status(
            store,
            "growth",
            "iris",
            "accepted",
            "yes",
            run_key=run_key,
            links={"a": "http://a"},
            fingerprint="accepted drop",
        )
        for state, links in (("running", {"b": "http://b"}), ("deployed", {"b": "http://c"})):
            assert update_run_status(store, "growth", "iris", run_key, state, "m", links=links)  # type: ignore[arg-type]
        content = answer(store)
        assert content["state"] == "deployed"
        assert content["links"] == {"a": "http://a", "b": "http://c"}
        assert content["fingerprint"] == "accepted drop"
        assert content["run_key"] == run_key

    def test_errors_as_the_trainer_wrote_them(self, store: Store, run_key: str) -> None:
        errors = [{"message": "bad", "line": 3, "file": "iris.csv", "later": "unknown"}]
        assert update_run_status(store, "growth", "iris", run_key, "failed", "why", errors=errors)
        assert answer(store)["errors"][0]["line"] == 3
        assert "iris.csv, line 3" in store.get(PAGE).decode()

    def test_an_older_run_is_silent(self, store: Store, run_key: str) -> None:
        Registry(store).accept(FakeSpec("two"), "growth", "iris", [data("e")], datetime.now(UTC))
        write_status(store, "growth", "iris", "accepted", "the newer one")
        assert not update_run_status(store, "growth", "iris", run_key, "failed", "m")
        assert answer(store)["message"] == "the newer one"

    def test_a_rejected_newer_drop_stays_in_sight(self, store: Store, run_key: str) -> None:
        write_status(store, "growth", "iris", "rejected", "its errors", fingerprint="newer drop")
        assert not update_run_status(store, "growth", "iris", run_key, "running", "m")
        assert answer(store)["message"] == "its errors"

    def test_nothing_is_said_of_a_job_that_is_gone(self, store: Store, run_key: str) -> None:
        assert not update_run_status(store, "growth", "other", run_key, "running", "m")
        Registry(store).retire("growth", "iris")
        assert not update_run_status(store, "growth", "iris", run_key, "running", "m")
        assert list(store.list("incoming/")) == []

    def test_a_rejection_that_comes_in_between_wins(
        self, store: Store, run_key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        update_run_status(store, "growth", "iris", run_key, "running", "1/5")
        real = store.replace

        def replace(*arguments: Any) -> object:
            monkeypatch.undo()
            write_status(store, "growth", "iris", "rejected", "its errors", fingerprint="newer drop")
            return real(*arguments)

        monkeypatch.setattr(store, "replace", replace)
        assert not update_run_status(store, "growth", "iris", run_key, "running", "2/5")
        assert answer(store)["state"] == "rejected"
        assert "its errors" in store.get(PAGE).decode()

    def test_a_status_that_never_holds_still(
        self, store: Store, run_key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def create(*_: Any) -> None:
            raise ConflictError("lost")

        monkeypatch.setattr(store, "create", create)
        with pytest.raises(ConflictError, match="keep changing it"):
            update_run_status(store, "growth", "iris", run_key, "running", "m")


class TestPage:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("sepal_length", "sepal_length"),
            ("_x_ *y*", r"\_x\_ \*y\*"),
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("[a](http://evil)", r"\[a\](http://evil)"),
            ("a|b\nc", r"a\|b\\nc"),
            ("`code` \\", r"\`code\` \\"),
            ("# title", r"\# title"),
            ("1. item", r"\1. item"),
            ("&lt;", "&amp;lt;"),
            ("a\u202eb\x07", r"a\\u202eb\\u0007"),
            ("ß漢字", "ß漢字"),
        ],
    )
    def test_what_comes_from_the_user_is_shown_literally(self, text: str, shown: str) -> None:
        assert escape(text) == shown

    def test_long_texts_are_cut(self) -> None:
        assert len(escape("x" * 5000)) == 603

    @given(st.text())
    def test_no_text_breaks_the_table(self, text: str) -> None:
        status = Status(
            "rejected",
            text,
            text,
            (ValidationIssue(text, text, text, 1, 1, text, text, text),),
            None,
            {text: text},
        )
        page = status_page(status)
        (row,) = [
            line
            for line in page.splitlines()
            if line.startswith("| ") and "| place |" not in line and "---" not in line
        ]
        assert row.replace(r"\|", "").count("|") == 4
        assert "<script" not in page
        page.encode(errors="replace")

    def test_links(self) -> None:
        links = {"good": "http://127.0.0.1:8080/dags/x", "bad": "javascript:alert(1)", "odd": "http://a b>"}
        page = status_page(Status("deployed", "m", "a/b", links=links))
        assert "- good: <http://127.0.0.1:8080/dags/x>" in page
        assert "<javascript" not in page
        assert "<http://a" not in page

    def test_many_errors(self) -> None:
        page = status_page(Status("rejected", "m", "a/b", tuple(ValidationIssue(f"p{n}") for n in range(60))))
        assert "p49" in page
        assert "p50" not in page
        assert "10 more are in" in page
