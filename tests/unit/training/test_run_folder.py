"""The run's folder: who owns it, what is read back, what comes last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dmls_core.errors import DataError, PlatformError, StoreError, UserError, ValidationIssue
from dmls_core.search.trial import Surface, Trial
from dmls_core.store import ObjectInfo, open_store
from dmls_core.store.local import LocalStore
from dmls_core.training.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(open_store(str(tmp_path / "out")))


def test_a_folder_belongs_to_one_run(folder: RunFolder, tmp_path: Path):
    assert folder.claim("aaaa") is None
    assert RunFolder(open_store(str(tmp_path / "out"))).claim("aaaa") is None
    with pytest.raises(UserError, match=r"holds another run \(aaaa\)"):
        RunFolder(open_store(str(tmp_path / "out"))).claim("bbbb")


def test_a_stranger_leaves_no_error_in_another_runs_folder(folder: RunFolder, tmp_path: Path):
    folder.claim("aaaa")
    RunFolder(open_store(str(tmp_path / "out"))).fail(UserError("mine"))
    assert not (tmp_path / "out/error.json").exists()

    folder.fail(DataError(ValidationIssue("is empty", file="a.csv", line=3)))

    error = json.loads((tmp_path / "out/error.json").read_text())
    assert error["kind"] == "DataError"
    assert error["exit_code"] == 1
    assert error["message"] == "a.csv:3: is empty"
    assert error["issues"][0]["line"] == 3


def test_an_error_before_the_run_is_known_is_told(folder: RunFolder, tmp_path: Path):
    folder.fail(PlatformError("no network"))

    error = json.loads((tmp_path / "out/error.json").read_text())
    assert (error["kind"], error["exit_code"], error["issues"]) == ("PlatformError", 3, [])


def test_the_first_result_stays_and_clears_the_error(folder: RunFolder, tmp_path: Path):
    folder.claim("aaaa")
    folder.fail(PlatformError("once"))

    assert folder.finish({"score": 1}) == {"score": 1}
    assert folder.finish({"score": 2}) == {"score": 1}
    assert folder.claim("aaaa") == {"score": 1}
    assert not (tmp_path / "out/error.json").exists()


def test_trials_are_read_back_but_not_strangers(folder: RunFolder, tmp_path: Path):
    kept = [Trial(n, "complete", "cpu", {"n_estimators": n}, n / 10, (n / 10,), 1.0) for n in range(3)]
    for trial in kept:
        folder.keep(trial)
    folder.keep(Trial(3, "complete", "gpu", {"n_estimators": 9}, 0.5))
    (tmp_path / "out/trials/00004.json").write_text("{}")
    (tmp_path / "out/trials/00005.json").write_text("not JSON")
    folder.keep(replace(kept[0], number=6, surface=Surface({}, ())))
    damaged = tmp_path / "out/trials/00006.json"
    damaged.write_text(json.dumps(json.loads(damaged.read_text()) | {"surface": {"axes": {}}}))

    assert folder.trials("cpu") == kept


def test_damaged_files_are_told_of_or_do_without(folder: RunFolder, tmp_path: Path):
    folder.claim("aaaa")
    folder.keep_clock(9.0, 1)
    for name in ("run", "clock"):
        (tmp_path / "out" / f"{name}.json").write_text("")

    assert folder.clock() == (0.0, 0)
    with pytest.raises(StoreError, match=r"run\.json is damaged .*: remove it, or choose another folder"):
        folder.claim("aaaa")


def test_what_failed_is_told_even_where_the_folder_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("")
    folder = RunFolder(open_store(str(tmp_path / "file/run")))

    with pytest.raises(StoreError, match=r"cannot write .*run\.json: .*choose another one") as failure:
        folder.claim("aaaa")
    folder.fail(failure.value)

    assert (tmp_path / "file").read_text() == ""


def test_uploads_are_described(folder: RunFolder, tmp_path: Path):
    (tmp_path / "local/model").mkdir(parents=True)
    (tmp_path / "local/model/a.bin").write_bytes(b"abc")
    (tmp_path / "local/report.html").write_bytes(b"")

    artifacts = folder.upload(tmp_path / "local")

    assert artifacts == [
        {"name": "model/a.bin", "bytes": 3, "sha256": hashlib.sha256(b"abc").hexdigest()},
        {"name": "report.html", "bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()},
    ]
    assert (tmp_path / "out/model/a.bin").read_bytes() == b"abc"


def test_what_a_listing_lost_is_written_again_as_a_new_object(tmp_path: Path):
    """SeaweedFS keeps objects whose folder was lost with a full disk: a listing does not show them."""

    class LostFolders(LocalStore):
        lost = {"model/a.bin", "trials/00001.json"}

        def list(self, prefix: str) -> Iterator[ObjectInfo]:
            return (info for info in super().list(prefix) if info.key not in self.lost)

        def delete(self, key: str) -> None:
            super().delete(key)
            self.lost.discard(key)

    store = LostFolders(tmp_path / "out")
    folder = RunFolder(store)
    (tmp_path / "local/model").mkdir(parents=True)
    (tmp_path / "local/model/a.bin").write_bytes(b"abc")
    for number in range(2):
        folder.keep(Trial(number, "complete", "cpu", {"n_estimators": 1}, 0.5, (0.5,), 1.0))

    folder.upload(tmp_path / "local")

    shown = {info.key: store.get(info.key) for info in store.list("")}
    assert shown["model/a.bin"] == b"abc"
    assert [trial.number for trial in folder.trials("cpu")] == [0, 1]
