from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dmls_core.errors import StoreError, ValidationIssue
from dmls_core.intake import admission, admit, find_submissions, read_status, update_run_status
from dmls_core.intake.column_check import CHUNK, Findings
from dmls_core.settings import IntakeLimits
from dmls_core.store import Registry, Store, layout, open_store
from dmls_core.testing.stores import race
from tests.unit.intake.uploads import CSV, REGRESSION, SPEC, drop


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def page(store: Store, team: str = "growth", job: str = "iris") -> str:
    return store.get(layout.incoming_file(team, job, "_status.md")).decode()


def test_accepted(store: Store) -> None:
    drop(store, {"iris.csv": CSV, "spec.toml": SPEC})
    outcome = admit(store, "growth", "iris", links={"airflow": "http://127.0.0.1/dags/x"})
    assert outcome.state == "accepted"
    assert outcome.issues == ()
    assert outcome.record
    assert outcome.record == Registry(store).job("growth", "iris")
    assert [item.key for item in outcome.record.data] == ["incoming/growth/iris/iris.csv"]
    (submission,) = find_submissions(store)
    assert outcome.record.fingerprint == submission.fingerprint
    status = read_status(store, "growth", "iris")
    assert status
    assert (status.state, status.run_key) == ("accepted", outcome.record.run_key)
    assert status.fingerprint == submission.fingerprint
    assert status.links == {"airflow": "http://127.0.0.1/dags/x"}
    assert "version 1: random-forest-classifier, up to 5 trials, on iris.csv" in page(store)
    assert Registry(store).spec(outcome.record.spec_sha256)["n_trials"] == 5


def test_an_unchanged_drop_is_left_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(store, {"iris.csv": CSV, "spec.toml": SPEC})
    first = admit(store, "growth", "iris")
    monkeypatch.setattr(admission, "_load", None)
    monkeypatch.setattr(store, "put", None)
    again = admit(store, "growth", "iris")
    assert again == first
    assert (first.unchanged, again.unchanged) == (False, True)


def test_how_a_run_goes_is_not_forgotten_by_looking_again(store: Store) -> None:
    drop(store, {"iris.csv": CSV, "spec.toml": SPEC})
    record = admit(store, "growth", "iris").record
    assert record
    update_run_status(
        store, "growth", "iris", record.run_key, "deployed", "it is served", links={"a": "http://a"}
    )
    assert admit(store, "growth", "iris").state == "deployed"
    drop(store, {"spec.toml": SPEC + b"# a comment\n"})
    outcome = admit(store, "growth", "iris")
    assert (outcome.state, outcome.record) == ("deployed", record)
    status = read_status(store, "growth", "iris")
    assert status
    assert status.fingerprint == find_submissions(store)[0].fingerprint != record.fingerprint
    assert status.links == {"a": "http://a"}
    assert update_run_status(store, "growth", "iris", record.run_key, "failed", "stopped by a person")
    late = "running", "no trainer runs now"
    assert not update_run_status(store, "growth", "iris", record.run_key, *late, unless={"failed"})
    assert "stopped by a person" in page(store)


def test_a_check_that_takes_long_is_told_and_leaves_no_trace(store: Store) -> None:
    drop(store, {"iris.csv": CSV, "spec.toml": SPEC})
    admission.report_check(store, "growth", "iris")
    assert "The answer follows" in page(store)
    admission.report_check(store, "growth", "iris")
    status = read_status(store, "growth", "iris")
    assert status
    assert (status.state, status.message) == ("waiting", "DMLS is checking the files.")
    record = admit(store, "growth", "iris").record
    assert record
    admission.report_check(store, "growth", "iris")
    assert "checking" not in page(store), "it has its answer"

    update_run_status(store, "growth", "iris", record.run_key, "deployed", "it is served")
    drop(store, {"spec.toml": SPEC + b"# a comment\n"})
    admission.report_check(store, "growth", "iris")
    status = read_status(store, "growth", "iris")
    assert status
    assert (status.state, status.message) == (
        "deployed",
        "it is served; later: DMLS is checking the files.",
    )
    outcome = admit(store, "growth", "iris")
    assert (outcome.state, outcome.message) == ("deployed", "it is served")
    admission.report_check(store, "growth", "gone")
    assert read_status(store, "growth", "gone") is None


def test_waiting_for_the_spec(store: Store) -> None:
    drop(store, {"iris.csv": CSV})
    outcome = admit(store, "growth", "iris")
    assert (outcome.state, outcome.record) == ("waiting", None)
    assert "upload spec.toml next to iris.csv" in page(store)
    assert Registry(store).jobs() == []


def test_a_spec_of_another_name(store: Store) -> None:
    drop(store, {"Spec.TOML": SPEC, "iris.csv": CSV})
    assert "rename Spec.TOML to spec.toml" in admit(store, "growth", "iris").message


def test_waiting_for_data(store: Store) -> None:
    drop(store, {"spec.toml": SPEC})
    outcome = admit(store, "growth", "iris")
    assert outcome.state == "waiting"
    assert "upload <name>.csv next to spec.toml" in outcome.message
    assert "&lt;name&gt;.csv" in page(store)
    drop(store, {"iris.csv": CSV})
    assert admit(store, "growth", "iris").state == "accepted"


def test_waiting_for_the_file_that_the_spec_names(store: Store) -> None:
    drop(store, {"spec.toml": SPEC + b'[data]\npath = "train.csv"\n', "other.csv": b"x"})
    outcome = admit(store, "growth", "iris")
    assert (outcome.state, outcome.message) == (
        "waiting",
        "Waiting for data: upload train.csv next to spec.toml.",
    )
    drop(store, {"train.csv": CSV})
    record = admit(store, "growth", "iris").record
    assert record
    assert [item.key for item in record.data] == ["incoming/growth/iris/train.csv"]


def test_several_files_by_a_pattern(store: Store) -> None:
    drop(store, {"spec.toml": SPEC + b'[data]\npath = "part-*.csv"\n', "part-1.csv": CSV, "part-2.csv": CSV})
    record = admit(store, "growth", "iris").record
    assert record
    assert [item.key[-10:] for item in record.data] == ["part-1.csv", "part-2.csv"]


def test_several_files_and_none_named(store: Store) -> None:
    drop(store, {"spec.toml": SPEC, "a.csv": CSV, "b.csv": CSV})
    outcome = admit(store, "growth", "iris")
    assert outcome.state == "rejected"
    (issue,) = outcome.issues
    assert issue.found == "a.csv, b.csv"
    assert '[data] path = "' in issue.hint


def test_labels_are_no_data_and_make_no_new_version(store: Store) -> None:
    spec = SPEC + b"[data]\nlabels = 'labels*.csv'\n[drift]\n"
    drop(store, {"iris.csv": CSV, "labels.csv": b"request_id,species\na,setosa\n", "spec.toml": spec})
    first = admit(store, "growth", "iris").record
    assert first
    assert [item.key for item in first.data] == ["incoming/growth/iris/iris.csv"]
    drop(store, {"labels-2.csv": b"request_id,species\nb,setosa\n"})
    second = admit(store, "growth", "iris").record
    assert second
    assert (second.version, second.run_key) == (first.version, first.run_key)


@pytest.mark.parametrize("path", ["../other/iris.csv", "/etc/passwd", "sub/iris.csv", "..\\\\iris.csv"])
def test_data_from_elsewhere(store: Store, path: str) -> None:
    drop(store, {"spec.toml": SPEC + b'[data]\npath = "%s"\n' % path.encode(), "iris.csv": CSV})
    outcome = admit(store, "growth", "iris")
    assert outcome.state == "rejected"
    assert {issue.key for issue in outcome.issues} == {"data.path"}


def test_all_errors_of_a_spec(store: Store) -> None:
    bad = (
        SPEC.replace(b"max = 500", b"max = 5").replace(b"n_trials = 5", b"n_trials = -5")
        + b"[colour]\nmin = 1\nmax=2\n"
    )
    drop(store, {"spec.toml": bad, "iris.csv": CSV})
    outcome = admit(store, "growth", "iris")
    assert outcome.state == "rejected"
    assert len(outcome.issues) >= 3
    assert all(issue.line for issue in outcome.issues)
    status = json.loads(store.get("incoming/growth/iris/_status.json"))
    assert len(status["errors"]) == len(outcome.issues)


def test_a_spec_without_end(store: Store) -> None:
    drop(store, {"spec.toml": b"[" * 3_000_000, "iris.csv": CSV})
    assert admit(store, "growth", "iris").state == "rejected"


def test_data_that_does_not_fit(store: Store) -> None:
    drop(store, {"spec.toml": SPEC, "iris.csv": b"a;b\n1;2\n"})
    assert "semicolons" in page_after(store)
    drop(store, {"spec.toml": REGRESSION, "iris.csv": CSV})
    assert "contains no numbers" in page_after(store)


def page_after(store: Store) -> str:
    assert admit(store, "growth", "iris").state == "rejected"
    return page(store)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"a,b\n1,2\n", "not Parquet"), (b"PAR1", "not Parquet")],
)
def test_parquet_that_is_none(store: Store, content: bytes, words: str) -> None:
    drop(store, {"spec.toml": SPEC, "iris.parquet": content})
    assert words in page_after(store)


def test_parquet_that_is_damaged(store: Store) -> None:
    drop(store, {"spec.toml": SPEC, "iris.parquet": b"PAR1 and more PAR1"})
    assert "cannot be read as Parquet" in page_after(store)


def test_a_format_that_the_name_does_not_tell(store: Store) -> None:
    named = SPEC + b'[data]\npath = "iris.dat"\n'
    drop(store, {"spec.toml": named, "iris.dat": CSV})
    assert "data.format" in page_after(store)
    drop(store, {"spec.toml": named + b'format = "csv"\n'})
    assert admit(store, "growth", "iris").state == "accepted"


def test_too_much_data(store: Store) -> None:
    drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
    outcome = admit(store, "growth", "iris", limits=IntakeLimits(data_bytes=10))
    assert outcome.state == "rejected"
    assert "too large" in outcome.message


def test_the_platform_s_memory_limit_counts_if_the_spec_has_none(store: Store) -> None:
    drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
    outcome = admit(store, "growth", "iris", memory="100m")
    assert outcome.state == "rejected"
    assert outcome.issues[0].expected == "at most 100 MiB"
    drop(store, {"spec.toml": SPEC + b'[resources]\nmemory = "2g"\n'})
    assert admit(store, "growth", "iris", memory="100m").state == "accepted"


def test_limits_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_INTAKE_DATA_BYTES", "77")
    assert IntakeLimits.from_environment().data_bytes == 77


def test_only_the_head_of_large_data_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(store, {"spec.toml": SPEC, "iris.csv": CSV + b"1,2,a\n" * 1000})
    limits: list[int] = []
    real = store.read

    def read(key: str, *, limit: int | None = None, start: int = 0) -> object:
        if key.endswith(".csv"):
            limits.append(limit or 0)
        return real(key, limit=limit, start=start)

    monkeypatch.setattr(store, "read", read)
    monkeypatch.setattr(store, "download", None)
    small = IntakeLimits(head_bytes=100, whole_bytes=1000)
    assert admit(store, "growth", "iris", limits=small).state == "accepted"
    assert limits[0] == 100
    assert max(limits) <= CHUNK


class TestCheckedAgain:
    def test_limits_that_were_raised(self, store: Store) -> None:
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        small = IntakeLimits(data_bytes=10)
        outcomes = [admit(store, "growth", "iris", limits=small) for _ in range(2)]
        assert [(one.state, one.unchanged) for one in outcomes] == [("rejected", False), ("rejected", True)]
        assert admit(store, "growth", "iris").state == "accepted"

    def test_a_gpu_that_was_not_offered(self, store: Store) -> None:
        drop(store, {"spec.toml": SPEC + b'[resources]\nengine = "gpu"\n', "iris.csv": CSV})
        outcomes = [admit(store, "growth", "iris", gpus=gpus) for gpus in (0, 0, 1)]
        assert [(one.state, one.unchanged) for one in outcomes] == [
            ("rejected", False),
            ("rejected", True),
            ("accepted", False),
        ]
        assert [(one.key, one.message) for one in outcomes[0].issues] == [
            ("resources.engine", "the platform offers no GPU")
        ]
        drop(store, {"spec.toml": SPEC})
        assert admit(store, "growth", "iris", gpus=0).state == "accepted"

    def test_a_source_whose_connection_was_not_there(self, store: Store) -> None:
        drop(store, {"spec.toml": SPEC + b'[data.source]\nconnection = "lake"\ntable = "iris"\n'})
        missing = Findings((ValidationIssue("the connection is missing"),))
        found = iter([missing, missing, Findings()])
        outcomes = [
            admit(store, "growth", "iris", check_connections=lambda *_: next(found)) for _ in range(3)
        ]
        assert [(one.state, one.unchanged) for one in outcomes] == [
            ("rejected", False),
            ("rejected", True),
            ("accepted", False),
        ]

    def test_the_same_files_uploaded_again(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(admission, "hash_environment", lambda *_: "the same")
        small = IntakeLimits(data_bytes=10)
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        assert admit(store, "growth", "iris", limits=small).state == "rejected"
        assert admit(store, "growth", "iris").state == "rejected"
        drop(store, {"spec.toml": SPEC})
        outcome = admit(store, "growth", "iris", limits=small)
        assert (outcome.state, outcome.unchanged) == ("rejected", False)
        drop(store, {"iris.csv": CSV})
        assert admit(store, "growth", "iris").state == "accepted"

    def test_an_accepted_submission_is_not(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """But its status says that it answers the later upload, also when the run goes on."""
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        record = admit(store, "growth", "iris").record
        assert record
        monkeypatch.setattr(admission, "_load", None)
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        outcome = admit(store, "growth", "iris")
        assert (outcome.record, outcome.unchanged) == (record, True)
        assert update_run_status(store, "growth", "iris", record.run_key, "running", "1/5")
        status = read_status(store, "growth", "iris")
        assert status
        assert status.fingerprint == find_submissions(store)[0].fingerprint != record.fingerprint

    def test_the_answer_of_an_earlier_release_stands(self, store: Store) -> None:
        drop(store, {"spec.toml": b"", "iris.csv": CSV})
        assert admit(store, "growth", "iris").state == "rejected"
        key = "incoming/growth/iris/_status.json"
        status = json.loads(store.get(key))
        del status["environment"]
        status["fingerprint"], _, _ = status["fingerprint"].partition(".")
        store.put(key, json.dumps(status).encode())
        outcome = admit(store, "growth", "iris")
        assert (outcome.state, outcome.unchanged) == ("rejected", True)


class TestRetiring:
    def test_the_spec_is_taken_away(self, store: Store) -> None:
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        admit(store, "growth", "iris")
        store.delete("incoming/growth/iris/spec.toml")
        outcome = admit(store, "growth", "iris")
        assert outcome.record
        assert outcome.record.state == "retired"
        assert "retired" in page(store)
        drop(store, {"spec.toml": SPEC})
        again = admit(store, "growth", "iris")
        assert again.state == "accepted"
        assert again.record
        assert (again.record.version, again.record.state) == (2, "active")

    def test_everything_but_the_answer_is_taken_away(self, store: Store) -> None:
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        admit(store, "growth", "iris")
        for name in ("spec.toml", "iris.csv"):
            store.delete(f"incoming/growth/iris/{name}")
        admit(store, "growth", "iris")
        assert "retired" in page(store)
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        assert admit(store, "growth", "iris").state == "accepted"

    def test_everything_is_taken_away(self, store: Store) -> None:
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        admit(store, "growth", "iris")
        for info in list(store.list("incoming/")):
            store.delete(info.key)
        outcome = admit(store, "growth", "iris")
        assert outcome.record
        assert outcome.record.state == "retired"
        assert list(store.list("incoming/")) == []
        assert admit(store, "growth", "iris").record is None

    def test_a_bad_drop_retires_nothing(self, store: Store) -> None:
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        record = admit(store, "growth", "iris").record
        drop(store, {"spec.toml": b"model = 3"})
        assert admit(store, "growth", "iris").state == "rejected"
        assert Registry(store).job("growth", "iris") == record
        drop(store, {"spec.toml": SPEC})
        outcome = admit(store, "growth", "iris")
        assert (outcome.state, outcome.record) == ("accepted", record)


class TestPlaces:
    @pytest.mark.parametrize(
        ("team", "job", "words"),
        [
            ("", "", "directly in 'incoming/'"),
            ("growth", "", "directly in the folder of team"),
            ("growth", "iris/deeper", "move them to incoming/growth/iris/"),
            ("Growth", "iris", "rename it to 'growth'"),
            ("growth", "my job", "rename it to 'my-job'"),
            ("%2e%2e", "iris", "rename it to '2e-2e'"),
            ("growth", "ïris", "cannot name a job"),
            ("growth", "<script>", "&lt;script&gt;"),
        ],
    )
    def test_the_answer_lies_beside_what_was_dropped(
        self, store: Store, team: str, job: str, words: str
    ) -> None:
        folder = layout.incoming_folder(team, job)
        store.put(f"{folder}spec.toml", SPEC)
        (submission,) = find_submissions(store)
        outcome = admit(store, submission.team, submission.job)
        assert outcome.state == "rejected"
        assert words in page(store, team, job)
        assert json.loads(store.get(f"{folder}_status.json"))["state"] == "rejected"
        assert admit(store, team, job) == outcome
        store.delete(f"{folder}spec.toml")
        assert admit(store, team, job).record is None
        assert list(store.list("registry/")) == []

    @pytest.mark.parametrize("name", ["a\\b.csv", "a\nb.csv", "\x1b[31m.csv"])
    def test_a_file_name_that_no_store_holds(self, store: Store, tmp_path: Path, name: str) -> None:
        drop(store, {"spec.toml": SPEC})
        (tmp_path / "incoming" / "growth" / "iris" / name).write_bytes(CSV)
        outcome = admit(store, "growth", "iris")
        assert outcome.state == "rejected"
        assert "cannot have the name" in outcome.message
        assert "cannot have the name" in page(store)

    @pytest.mark.parametrize(
        "name", ["my data (final).csv", "ü\u00a0.CSV", "100%2e.csv", "-rf.csv", "$(x).csv"]
    )
    def test_odd_file_names_are_fine(self, store: Store, name: str) -> None:
        drop(store, {"spec.toml": SPEC, name: CSV})
        assert admit(store, "growth", "iris").state == "accepted"

    def test_a_good_job_beside_a_submission_that_is_too_deep(self, store: Store) -> None:
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV, "old/iris.csv": CSV, "old/spec.toml": SPEC})
        assert [admit(store, found.team, found.job).state for found in find_submissions(store)] == [
            "accepted",
            "rejected",
        ]

    @pytest.mark.parametrize(
        ("team", "job"), [("..", "x"), ("", "x"), ("a", "../../b"), ("a\n", "b"), ("a", "b\0")]
    )
    def test_where_no_answer_can_lie(
        self, store: Store, team: str, job: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        outcome = admit(store, team, job)
        assert outcome.state == "rejected"
        assert "cannot be a key" in caplog.text
        assert list(store.list("")) == []


class TestAtOnce:
    def test_two_intakes_admit_once(self, store: Store) -> None:
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        outcomes: list[Any] = race(2, lambda _: admit(store, "growth", "iris"))
        assert {outcome.state for outcome in outcomes} == {"accepted"}
        assert {outcome.record.version for outcome in outcomes} == {1}
        assert len({outcome.record for outcome in outcomes}) == 1

    def test_an_intake_that_saw_less_does_not_have_the_last_word(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drop(store, {"spec.toml": SPEC})
        real = admission.write_status

        def write_status(*arguments: Any, **options: Any) -> object:
            monkeypatch.undo()
            drop(store, {"iris.csv": CSV})
            assert admit(store, "growth", "iris").state == "accepted"
            return real(*arguments, **options)

        monkeypatch.setattr(admission, "write_status", write_status)
        assert admit(store, "growth", "iris").state == "accepted"
        status = read_status(store, "growth", "iris")
        assert status
        assert status.state == "accepted"

    def test_a_file_that_vanishes_while_it_is_looked_at(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drop(store, {"spec.toml": SPEC, "iris.csv": CSV})
        real = store.read

        def read(key: str, **options: Any) -> object:
            if key.endswith(".csv"):
                store.delete(key)
            return real(key, **options)

        monkeypatch.setattr(store, "read", read)
        outcome = admit(store, "growth", "iris")
        assert outcome.state == "waiting"
        assert "upload <name>.csv" in outcome.message


def test_an_answer_that_cannot_be_written_is_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    drop(store, {"spec.toml": SPEC, "iris.csv": CSV})

    def put(*_: object) -> None:
        raise StoreError("cannot write")

    monkeypatch.setattr(store, "put", put)
    with pytest.raises(StoreError, match="cannot write"):
        admit(store, "growth", "iris")
