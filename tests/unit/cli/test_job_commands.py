"""``dmls submit``, ``jobs`` and ``show`` over a folder, with the admission that the platform would run."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from dmls_core.cli import job_commands
from dmls_core.cli.console import out
from dmls_core.cli.job_commands import follow
from dmls_core.intake import Status, admit, read_status, update_run_status, write_status
from dmls_core.settings import IntakeLimits
from dmls_core.store import Registry, layout, open_store
from dmls_core.visible_text import visible_lines


@pytest.fixture
def store(dmls, monkeypatch, tmp_path):
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("DMLS_ROOT", str(tmp_path / "root"))
    monkeypatch.setattr(job_commands, "ANSWER_SECONDS", 0.0)
    return open_store(str(tmp_path / "root"))


def test_a_root_that_does_not_exist_has_no_jobs_to_list(dmls, monkeypatch, tmp_path):
    monkeypatch.setenv("DMLS_ROOT", str(tmp_path / "nowhere"))
    done = dmls("jobs")
    assert done.code == 3
    assert f"DMLS_ROOT: there is no folder {tmp_path / 'nowhere'}" in done.err
    monkeypatch.setenv("DMLS_ROOT", "x" * 300)
    assert "DMLS_ROOT: there is no folder" in dmls("jobs").err
    monkeypatch.setenv("DMLS_ROOT", str(tmp_path / "nowhere"))
    (tmp_path / "nowhere").mkdir()
    assert "no jobs yet" in dmls("jobs").err + dmls("jobs").out


RESULT = {
    "schema": 1,
    "model": "random-forest-classifier",
    "engine": "cpu",
    "n_trials": 2,
    "metric": "accuracy",
    "score": 0.91,
    "cv_score": 0.9,
    "best_params": {"n_estimators": 7},
    "seconds": {"search": 1.5, "total": 2.0},
    "warnings": ["Only 10 rows were held out."],
}


def finish(store, team: str, name: str, state: str, message: str = "done", errors: tuple = ()) -> None:
    """Admit a submission and end its run, as the platform does."""
    end = time.monotonic() + 120
    while (outcome := admit(store, team, name)).record is None:
        assert time.monotonic() < end, outcome
        time.sleep(0.05)
    key = outcome.record.run_key
    update_run_status(store, team, name, key, "running", "training 1/2")
    store.put(layout.run_folder(team, name, key) + layout.RESULT, json.dumps(RESULT).encode())
    update_run_status(store, team, name, key, state, message, errors=errors, links={"mlflow": "http://m/1"})


def test_submit_drops_data_and_spec(dmls, store, files):
    done = dmls("submit", *files, "--team", "sea")
    assert done.code == 0, done.err
    assert "uploaded sea/tides" in done.out
    assert "Admission has not answered" in done.err
    assert store.get("incoming/sea/tides/spec.toml") == files[0].read_bytes()
    assert store.get("incoming/sea/tides/data.csv") == files[1].read_bytes()


def test_submit_takes_a_folder_of_partitions(dmls, store, files, tmp_path):
    spec, table = files
    spec.write_text(spec.read_text() + '[data]\npath = "weeks/dt={date}/*.csv"\n')
    for name in (
        "weeks/dt=2026-01-05/a.csv",
        "weeks/dt=2026-01-12/a.csv",
        "weeks/.cache/b.csv",
        "weeks/notes.md",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(table.read_text())
    assert dmls("validate", spec, tmp_path / "weeks").code == 0
    done = dmls("submit", spec, tmp_path / "weeks", "--team", "sea")
    assert done.code == 0, done.err
    assert [info.key for info in store.list("incoming/")] == [
        "incoming/sea/tides/spec.toml",
        "incoming/sea/tides/weeks/dt=2026-01-05/a.csv",
        "incoming/sea/tides/weeks/dt=2026-01-12/a.csv",
    ]
    assert admit(store, "sea", "tides").state == "accepted"

    (tmp_path / "weeks/dt=2026-01-12/a.csv").write_text("a,b\n1,2\n")
    assert dmls("submit", spec, tmp_path / "weeks").code == 1
    (tmp_path / "empty").mkdir()
    assert "has no data file" in dmls("submit", spec, tmp_path / "empty").err
    done = dmls("submit", spec, tmp_path / "weeks" / "dt=2026-01-05")
    assert "no data file has the name in the spec" in done.err


def test_submit_refuses_what_admission_would(dmls, store, files):
    files[1].write_text("a,b\n1,2\n")
    done = dmls("submit", *files)
    assert done.code == 1
    assert not list(store.list("incoming/"))


def test_submit_says_what_admission_answered(dmls, store, files, monkeypatch):
    upload = job_commands.upload

    def upload_and_admit(*arguments) -> str:
        fingerprint = upload(*arguments)
        admit(store, "sea", "tides", limits=limits)
        return fingerprint

    monkeypatch.setattr(job_commands, "upload", upload_and_admit)
    limits = IntakeLimits(data_bytes=10)
    done = dmls("submit", *files, "--team", "sea")
    assert done.code == 1
    assert "rejected" in done.err
    assert done.err.count("the data is too large") == 1
    limits = IntakeLimits()
    done = dmls("submit", *files, "--team", "sea")
    assert done.code == 0
    assert "Accepted as version 1" in done.err
    done = dmls("submit", *files, "--team", "sea", "--json")
    assert json.loads(done.out)["status"]["state"] == "accepted"


def test_a_file_of_another_name_is_refused_before_its_upload(dmls, store, files):
    dmls("submit", *files, "--team", "sea")
    later = files[1].rename(files[1].with_name("february.csv"))
    done = dmls("submit", files[0], later, "--team", "sea")
    assert done.code == 1
    assert "in incoming/sea/tides/, where earlier files stay, there are 2 data files" in done.err
    assert '[data] path = "february.csv"' in done.err
    assert store.head("incoming/sea/tides/february.csv") is None
    files[0].write_text(files[0].read_text() + '[data]\npath = "february.csv"\n')
    assert dmls("submit", files[0], later, "--team", "sea").code == 0


def test_submit_refuses_an_unfit_name(dmls, store, files):
    done = dmls("submit", *files, "--name", "No Such Name")
    assert done.code == 1
    assert "no-such-name" in done.err
    assert dmls("submit", *files, "--name", "../up").code == 1


@pytest.mark.parametrize(
    ("state", "code"),
    [("deployed", 0), ("awaiting approval", 0), ("trained", 0), ("failed", 3)],
)
def test_waiting_ends_with_the_run(dmls, store, files, state, code):
    platform = threading.Thread(target=finish, args=(store, "sea", "tides", state, "that was it"))
    platform.start()
    done = dmls("submit", *files, "--team", "sea", "--wait", "--json")
    platform.join()
    assert done.code == code, done.err
    answer = json.loads(done.out)
    assert (answer["state"], answer["message"]) == (state, "that was it")
    assert done.err.count("that was it") == 1
    if state == "awaiting approval":
        assert read_status(store, "sea", "tides").state == state


def test_a_failure_with_errors_is_the_users(dmls, store, files):
    errors = ({"message": "too few rows", "file": "data.csv"}, {"message": "no column 'x'"})
    message = "The task validate failed, 2 errors; the first: data.csv: too few rows"
    platform = threading.Thread(target=finish, args=(store, "sea", "tides", "failed", message, errors))
    platform.start()
    done = dmls("submit", *files, "--team", "sea", "--wait")
    platform.join()
    assert done.code == 1
    assert "data.csv: error: too few rows" in done.err
    shown, page = dmls("show", "sea/tides").out, store.get("incoming/sea/tides/_status.md").decode()
    for text in (done.err, shown, page):
        assert "The task validate failed, 2 errors\n" in text
        assert text.count("too few rows") == text.count("no column 'x'") == 1


def test_an_answer_to_an_earlier_drop_is_passed_over(dmls, store, files):
    dmls("submit", *files, "--team", "sea")
    finish(store, "sea", "tides", "failed", "the first one")
    files[1].write_text(files[1].read_text() + "99,1,no\n")
    spec = "incoming/sea/tides/spec.toml"
    first = store.head(spec)

    def finish_second() -> None:
        end = time.monotonic() + 120
        while store.head(spec) == first and time.monotonic() < end:  # written last
            time.sleep(0.05)
        time.sleep(0.3)
        finish(store, "sea", "tides", "deployed", "the second")

    platform = threading.Thread(target=finish_second)
    platform.start()
    done = dmls("submit", *files, "--team", "sea", "--wait")
    platform.join()
    assert done.code == 0
    assert "the second" in done.err
    assert "the first one" not in done.err


def test_a_later_drop_ends_the_wait_for_an_earlier_one(store, capsys):
    write_status(store, "sea", "tides", "running", "of mine", fingerprint="mine")
    shown: list[Status] = []

    def drop(status: Status) -> None:
        shown.append(status)
        write_status(store, "sea", "tides", "accepted", "of later", fingerprint="later")

    last = follow(store, "sea", "tides", fingerprint="mine", seconds=20, show=drop)
    assert [status.message for status in (*shown, last)] == ["of mine", "of mine"]
    assert "a later submission has replaced this one" in capsys.readouterr().err


def test_jobs_lists_accepted_and_rejected_drops(dmls, store, files):
    assert "no jobs yet" in dmls("jobs").out
    dmls("submit", *files, "--team", "sea")
    finish(store, "sea", "tides", "deployed", "deployed as sea.tides version 1")
    store.put("incoming/sea/broken/spec.toml", b"model = 1")
    admit(store, "sea", "broken")

    lines = dmls("jobs").out.splitlines()
    assert any(line.startswith("sea/tides") and "deployed" in line for line in lines)
    assert any(line.startswith("sea/broken") and "rejected" in line for line in lines)
    rows = {row["job"]: row for row in json.loads(dmls("jobs", "--json").out)["jobs"]}
    assert rows["sea/tides"]["version"] == 1
    assert rows["sea/broken"]["version"] is None


def test_messages_follow_the_table_in_a_narrow_terminal(dmls, store, monkeypatch):
    write_status(store, "sea", "tides-of-the-north", "failed", "the target has one class")
    write_status(store, "sea", "waves", "deployed", "deployed as sea.waves version 1")
    monkeypatch.setattr(out, "width", 60)
    heading, *_, last = dmls("jobs").out.splitlines()
    assert "MESSAGE" not in heading
    assert last == "sea/tides-of-the-north: the target has one class"
    monkeypatch.setattr(out, "width", 160)
    assert "MESSAGE" in dmls("jobs").out


def test_a_long_name_hides_no_column(dmls, store, monkeypatch):
    write_status(store, "sea", "long" * 50, "rejected", "the name is too long")
    write_status(store, "sea", "waves", "deployed", "deployed as sea.waves version 1")
    monkeypatch.setattr(out, "width", 80)
    heading, *lines = dmls("jobs").out.splitlines()
    assert heading.split() == ["JOB", "STATE", "VERSION", "SERVED", "UPDATED"]
    assert all(len(line) <= 80 for line in lines[:-1])
    assert [state for line in lines for state in ("deployed", "rejected") if f" {state} " in line]
    assert "long" * 50 in "".join(line.split()[0] for line in lines[:-1])


def test_an_odd_drop_hides_no_job(dmls, store):
    for folder, updated in (("[/b]", "2026-01-02T00:00:00+00:00"), ("plain", "2026-01-01T00:00:00")):
        write_status(store, "sea", folder, "waiting", "for its data")
        key = f"incoming/sea/{folder}/_status.json"
        store.put(key, json.dumps(json.loads(store.get(key)) | {"updated": updated}).encode())
    done = dmls("jobs")
    assert done.code == 0, done.err
    assert [line.split()[0] for line in done.out.splitlines()] == ["JOB", "sea/[/b]", "sea/plain"]


def test_no_name_or_message_changes_the_screen(dmls, store):
    write_status(store, "sea", "tides\u202e:id:", "rejected", "no data\nsea/waves  deployed\x1b[2J")
    done = dmls("jobs")
    assert r"sea/tides\u202e:id:" in done.out
    assert r"no data\nsea/waves  deployed\u001b[2J" in done.out
    assert visible_lines(done.out) == done.out
    assert visible_lines(dmls("jobs", "--json").out).count(r"\u202e") == 1


def test_a_retired_job_is_listed_no_more(dmls, store, files):
    dmls("submit", *files, "--team", "sea")
    finish(store, "sea", "tides", "deployed")
    Registry(store).retire("sea", "tides")
    write_status(store, "sea", "tides", "waiting", "for its spec")
    (row,) = json.loads(dmls("jobs", "--json").out)["jobs"]
    assert row["state"] == "retired"  # as on its page, while its data is still there
    for info in list(store.list("incoming/")):
        store.delete(info.key)
    assert "sea/tides" not in dmls("jobs").out
    assert "(retired)" in dmls("show", "sea/tides").out


def test_show_tells_state_result_and_links(dmls, store, files):
    dmls("submit", *files, "--team", "sea")
    finish(store, "sea", "tides", "deployed", "served")
    key = Registry(store).job("sea", "tides").run_key
    runner = {
        "schema": 1,
        "runner": "docker",
        "exit_code": 0,
        "image": "dmls-trainer:cpu",
        "container": "0123456789abcdef",
        "started": "2026-01-02T03:04:05.678Z",
        "finished": "2026-01-02T03:04:35.678Z",
        "labels": {"dmls.dag": "dmls.sea.tides"},
    }
    store.put(layout.run_folder("sea", "tides", key) + "runner.json", json.dumps(runner).encode())

    out = dmls("show", "sea/tides").out
    for words in (
        "deployed",
        "random-forest-classifier on cpu",
        "0.9100",
        "n_estimators = 7",
        "Only 10 rows were held out.",
        "http://m/1",
        "docker, exit code 0",
        "dmls.dag=dmls.sea.tides",
    ):
        assert words in out
    answer = json.loads(dmls("show", "sea.tides", "--json").out)
    assert answer["result"]["score"] == 0.91
    assert answer["status"]["state"] == "deployed"


def test_show_of_an_unknown_job(dmls, store):
    done = dmls("show", "sea/none")
    assert done.code == 1
    assert "there is no job sea/none" in done.err


@pytest.mark.parametrize("name", ["tides", "sea/tides/deep", ""])
def test_show_wants_team_and_name(dmls, store, name):
    done = dmls("show", name)
    assert done.code == 1
    assert "TEAM/NAME" in done.err


@pytest.mark.parametrize(
    ("path", "name"), [("Iris/spec.toml", "iris"), ("flats.toml", "flats"), ("a/b/Big-One.toml", "big-one")]
)
def test_the_jobs_name_follows_from_the_spec(path, name):
    from dmls_core.cli.job_commands import job_name

    assert job_name(Path(path)) == name
