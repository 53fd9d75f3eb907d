"""Spec and data are fetched, and are what was asked for."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from dmls_core.errors import DataError, SpecError, SubmissionError, UserError
from dmls_core.models import load_spec
from dmls_core.store import open_store
from dmls_core.training import TrainRequest
from dmls_core.training.request import fetch_data, read_spec

SPEC = b'model = "random-forest-classifier"\nn_trials = 2\n[columns]\ntarget = "y"\n'


def test_a_spec_in_toml_and_the_accepted_one_in_json_are_the_same(tmp_path: Path):
    (tmp_path / "spec.toml").write_bytes(SPEC)
    spec = read_spec(str(tmp_path / "spec.toml"))
    (tmp_path / "abc.json").write_bytes(spec.canonical())

    assert read_spec(str(tmp_path / "abc.json")) == spec == load_spec(SPEC)


def test_a_pipe_or_a_device_is_no_data_and_no_endless_spec(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match=f"{path}: this is a pipe or a device"):
            fetch_data([str(path)], (), tmp_path)
    with pytest.raises(SpecError, match="is too large"):
        read_spec("/dev/zero")


@pytest.mark.parametrize(
    ("name", "content"),
    [("spec.json", b"{"), ("spec.json", b"[]"), ("spec.toml", b"model = 3"), ("gone.toml", None)],
)
def test_what_is_no_spec(tmp_path: Path, name: str, content: bytes | None):
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(SpecError):
        read_spec(str(tmp_path / name))


def test_local_data_is_used_where_it_is(tmp_path: Path):
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,2\n")

    (file,) = fetch_data([str(tmp_path / "a.csv")], (), tmp_path / "scratch")

    sha256 = hashlib.sha256(b"x,y\n1,2\n").hexdigest()
    assert file.path == (tmp_path / "a.csv").resolve()
    assert (file.size, file.sha256) == (8, sha256)
    assert sha256.startswith(file.etag)
    assert not (tmp_path / "scratch").exists()
    assert json.dumps(file.as_json())


def test_an_etag_is_held_against_a_local_file(tmp_path: Path):
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,2\n")
    etag = open_store(str(tmp_path)).head("a.csv").etag

    (file,) = fetch_data([str(tmp_path / "a.csv")], [etag], tmp_path)
    assert file.etag == etag
    (tmp_path / "a.csv").write_bytes(b"x,y\n1,3\n")
    with pytest.raises(DataError, match="has changed since"):
        fetch_data([str(tmp_path / "a.csv")], [etag], tmp_path)


def test_missing_data_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"gone\.csv: there is no such file"):
        fetch_data([str(tmp_path / "gone.csv")], (), tmp_path)


def test_requests_are_checked():
    with pytest.raises(SubmissionError, match="cannot name a team"):
        TrainRequest("s", ("d",), "o", team="Not A Name")
    with pytest.raises(UserError, match="no data"):
        TrainRequest("s", (), "o")
    with pytest.raises(UserError, match="2 ETags were given for 1 data files"):
        TrainRequest("s", ("d",), "o", etags=("a", "b"))
