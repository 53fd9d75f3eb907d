"""The cache of matrices: what it keeps, for whom, and what it does with damage and a full disk."""

from __future__ import annotations

import json
import os
import threading

import numpy as np
import pytest

from dmls_core.data.table.memory import TableSize
from dmls_core.models import load_spec
from dmls_core.training import matrix_cache
from dmls_core.training.matrix_cache import MatrixCache
from dmls_core.training.request import TrainingJob, TrainRequest, fetch_data
from dmls_core.training.run import _requested_models

ROWS = 60
SPEC = """model = "{model}"
n_trials = 1
[columns]
target = "y"
[evaluation]
holdout = {holdout}
"""


@pytest.fixture
def make_job(tmp_path, monkeypatch):
    """Return a function that makes a job on a table of numbers, categories and dates."""
    monkeypatch.setenv("DMLS_CACHE_FOLDER", str(tmp_path / "cache"))
    lines = [
        f"{row},{row / 3 if row % 7 else ''},{'abc'[row % 3]},2026-01-{row % 28 + 1:02},{row % 2}"
        for row in range(ROWS)
    ]
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["a,b,c,d,y", *lines, ""]))

    def make(name="one", *, team="shop", model="random-forest-classifier", holdout=0.2, more=""):
        parsed = load_spec(
            (SPEC.format(model=model, holdout=holdout) + more)
            .replace('target = "y"', 'target = "y"\ndates = ["d"]')
            .encode(),
            file="spec.toml",
        )
        request = TrainRequest("spec.toml", (str(data),), str(tmp_path / name), team=team)
        files = fetch_data(request.data, (), tmp_path / name)
        return TrainingJob(
            request, parsed, _requested_models(request, parsed), "key", files, tmp_path / name / "out", ""
        )

    return make


def prepared(job):
    from dmls_core.training.prepare import prepare_models

    return prepare_models(job)[0].data


def plain(data):
    """Return everything about the data that models, reports and deployments use, as comparable values."""
    return {
        "arrays": [array.tolist() for array in (data.train_target, data.test_target)],
        "matrices": [np.nan_to_num(matrix, nan=-9.0).tolist() for matrix in (data.train, data.test)],
        "encoder": data.encoder.as_json(),
        "profile": data.profile.as_json(),
        "rest": (data.golden, data.edges, data.labels, data.warnings, data.since, data.left_out),
        "roles": [roles.weights for roles in (data.train_roles, data.test_roles)],
    }


def entries(tmp_path):
    return sorted((tmp_path / "cache").glob("*/*/*/entry.json"))


@pytest.mark.parametrize("model", ["random-forest-classifier", "lightgbm-classifier"])
def test_data_of_the_cache_is_that_of_the_files(make_job, tmp_path, monkeypatch, model):
    monkeypatch.setenv("DMLS_CACHE_FOLDER", "")
    wanted = prepared(make_job(model=model))
    monkeypatch.setenv("DMLS_CACHE_FOLDER", str(tmp_path / "cache"))
    first = prepared(make_job(model=model))

    monkeypatch.setattr("dmls_core.training.prepare.read_table", None)  # the file is not read again
    monkeypatch.setattr("dmls_core.training.prepare.measure_table", None)
    second = prepared(make_job("two", model=model))

    assert plain(first) == plain(second) == plain(wanted)
    assert isinstance(second.train, np.memmap)
    assert second.train.flags.writeable


@pytest.mark.parametrize(
    "changes",
    [
        {"team": "bank"},
        {"holdout": 0.3},
        {"model": "lightgbm-classifier"},
        {"more": "[search]\nseed = 7\n"},
        {"more": '[data]\nformat = "csv"\n'},
    ],
)
def test_other_teams_splits_and_encodings_have_other_entries(make_job, tmp_path, changes):
    prepared(make_job())
    prepared(make_job("two", **changes))

    assert len(entries(tmp_path)) == 2
    assert {path.parts[-4] for path in entries(tmp_path)} == {"shop", changes.get("team", "shop")}
    assert (tmp_path / "cache" / "shop").stat().st_mode & 0o77 == 0


def test_other_content_has_another_entry(make_job, tmp_path):
    prepared(make_job())
    data = tmp_path / "data.csv"
    data.write_text(data.read_text().replace("\n1,", "\n1000,", 1))
    found = prepared(make_job("two"))
    assert 1000 in (found.train[:, 0].max(), found.test[:, 0].max())
    assert len(entries(tmp_path)) == 2


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "json"])
def test_a_damaged_entry_is_built_again(make_job, tmp_path, damage):
    wanted = plain(prepared(make_job()))
    (entry,) = entries(tmp_path)
    matrix = entry.with_name("train.npy")
    content = bytearray(matrix.read_bytes())
    match damage:
        case "flip":
            content[-1] ^= 255
            matrix.write_bytes(content)
        case "cut":
            matrix.write_bytes(content[:-4])
        case "gone":
            matrix.unlink()
        case "json":
            entry.write_text(entry.read_text()[:-3])

    assert plain(prepared(make_job("two"))) == wanted
    (entry,) = entries(tmp_path)
    assert json.loads(entry.read_text())["files"]["train.npy"][0] == matrix.stat().st_size


def test_the_least_recently_used_entries_are_deleted(tmp_path):
    array = {"train": np.zeros(1_000, np.float32)}
    caches = [MatrixCache(tmp_path / "team", 9_000, {"number": number}) for number in range(3)]
    for at, cache in enumerate(caches[:2]):
        cache.keep("0", {}, array)
        os.utime(cache._job_folder, (at, at))
    kept = caches[0].load("0")  # now the most recent one
    caches[2].keep("0", {}, array)

    assert [cache.load("0") is not None for cache in caches] == [True, False, True]
    caches[0].keep("1", {}, {"train": np.zeros(10_000, np.float32)})  # larger than the cache
    assert caches[0].load("1") is None
    assert kept is not None
    assert kept.arrays["train"].sum() == 0


def test_a_full_disk_or_a_folder_that_cannot_be_written_does_not_matter(make_job, tmp_path, monkeypatch):
    wanted = plain(prepared(make_job()))

    def full(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(matrix_cache.np, "save", full)
    assert plain(prepared(make_job("two", team="bank"))) == wanted
    (tmp_path / "file").touch()
    monkeypatch.setenv("DMLS_CACHE_FOLDER", str(tmp_path / "file"))
    assert plain(prepared(make_job("three"))) == wanted


def test_of_several_trainers_one_builds_an_entry(tmp_path):
    cache, built = MatrixCache(tmp_path, 1 << 20, {}), []

    def train():
        with cache.locked("0"):
            if cache.load("0") is None:
                built.append(1)
                cache.keep("0", {}, {"train": np.ones(10)})

    threads = [threading.Thread(target=train) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == [1]


def test_the_size_is_kept(tmp_path):
    cache = MatrixCache(tmp_path, 1 << 20, {})
    assert cache.size is None
    cache.keep_size(TableSize(3, 2, 10))
    assert cache.size == TableSize(3, 2, 10)
