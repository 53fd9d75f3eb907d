"""The real Great Expectations, in its process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dmls_core.data.validation import ValidationProcess
from dmls_core.errors import PlatformError
from dmls_core.spec import Columns, Expectations, ModelSearch, Spec

PATIENCE = 600
IRIS = "size,colour,target\n" + "5.1,red,a\n4.9,blue,b\n4.7,red,b\n" * 20


def _spec(expectations=None, **columns) -> Spec:
    return Spec(
        task="classification",
        models=(ModelSearch(name="random-forest-classifier", hyperparameters={}),),
        n_trials=1,
        columns=Columns(**{"target": "target"} | columns),
        expectations=Expectations(**expectations or {}),
    )


def _data(folder: Path, content: str) -> Path:
    path = folder / "data.csv"
    path.write_text(content)
    return path


@pytest.fixture
def started():
    """Processes to end when a test fails."""
    processes: list[ValidationProcess] = []
    yield processes
    for process in processes:
        process.kill()


def test_good_data_without_a_network_and_without_secrets(tmp_path, monkeypatch, started):
    # Whatever the child tries to reach is written down and refused.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import socket\n"
        "def refuse(*arguments, **options):\n"
        f"    open({str(tmp_path / 'tried')!r}, 'a').write(repr(arguments))\n"
        "    raise OSError('no network here')\n"
        "socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("GX_CLOUD_ACCESS_TOKEN", "hush")
    process = ValidationProcess(_spec(), [_data(tmp_path, IRIS)], tmp_path / "out")
    started.append(process)
    assert not process.finished
    proc = Path(f"/proc/{process.pid}")
    while b"dmls_core.sandbox" not in (proc / "cmdline").read_bytes():
        time.sleep(0.01)
    assert b"hush" not in (proc / "environ").read_bytes()
    validation = process.result(PATIENCE)
    assert process.finished
    assert validation.success
    assert validation.failed == ()
    assert not (tmp_path / "tried").exists()
    assert (tmp_path / "out" / "validation.log").read_text() == ""

    report = json.loads((tmp_path / "out" / "validation.json").read_text())
    assert report["schema"] == 1
    assert report["success"] is True
    assert report["seconds"] > 0
    assert set(report["expectations"][0]) == {
        "column",
        "expectation",
        "success",
        "observed",
        "expected",
        "message",
    }
    messages = {item["message"] for item in report["expectations"]}
    assert "the data: there is at least 1 row, as expected: there are 60" in messages
    assert "column 'size': every value is a number, as expected: all are numbers" in messages
    page = (tmp_path / "out" / "data_docs" / "index.html").read_text()
    assert "Great Expectations Version" in page
    assert "colour" in page


def test_what_is_not_as_expected_is_told(tmp_path, started):
    hostile = "<script>alert(1)</script><img src=//evil.example/x>"
    content = IRIS + f"5.0,{hostile},a\nbig,red,a\n9.5,red,b\n"
    expectations = {
        "min_rows": 100,
        "columns": {
            "size": {"max": 9, "unique": True},
            "colour": {"values": ["red", "blue"], "pattern": "^[a-z]+$"},
            "absent": {"unique": True},
            "target": {"values": ["a", "b"]},
        },
    }
    process = ValidationProcess(_spec(expectations), [_data(tmp_path, content)], tmp_path / "out")
    started.append(process)
    validation = process.result(PATIENCE)
    assert not validation.success
    failed = {(item.column, item.expectation): item.observed for item in validation.failed}
    assert failed == {
        ("", "expect_table_row_count_to_be_between"): "there are 63",
        ("absent", "expect_column_to_exist"): "it does not exist",
        ("size", "expect_column_values_to_be_in_type_list"): "1 of 63 values do not meet it, such as big",
        (
            "size",
            "expect_column_values_to_be_unique",
        ): "60 of 63 values do not meet it, such as 5.1, 4.9, 4.7, 5.1, 4.9",
        (
            "colour",
            "expect_column_values_to_be_in_set",
        ): f"1 of 63 values do not meet it, such as {hostile[:40]}",
        (
            "colour",
            "expect_column_values_to_match_regex",
        ): f"1 of 63 values do not meet it, such as {hostile[:40]}",
    }
    page = (tmp_path / "out" / "data_docs" / "index.html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.replace("&amp;", "&")
    assert not re.search(r"<(script|img|link|iframe|form|object)\b|\bon\w+=|url\(|href=\"[^#]", page)
    assert "default-src 'none'" in page


def test_bounds_of_numbers(tmp_path, started):
    content = "size,target\n0.1,a\n0.2,b\n16777217,b\nNA,a\n"
    expectations = {"columns": {"size": {"min": 0.1, "max": 16_777_216, "values": [0.1, 0.2, 16_777_217]}}}
    process = ValidationProcess(_spec(expectations), [_data(tmp_path, content)], tmp_path / "out")
    started.append(process)
    (failed,) = process.result(PATIENCE).failed
    assert failed.expectation == "expect_column_values_to_be_between"
    assert failed.message == (
        "column 'size': every value is at least 0.1 and at most 16777216, but: "
        "1 of 4 values do not meet it, such as 16777217.0"
    )


def test_a_file_that_cannot_be_read_is_not_as_expected(tmp_path, started):
    process = ValidationProcess(_spec(), [_data(tmp_path, "size,target\n1,a\n2\n")], tmp_path / "out")
    started.append(process)
    (failed,) = process.result(PATIENCE).failed
    assert failed.expectation == "readable"
    assert failed.message.startswith("data.csv:3: the record has 1 field, the header 2")


def test_a_process_that_breaks_says_why(tmp_path, started):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "validation.json.part").mkdir()
    process = ValidationProcess(_spec(), [_data(tmp_path, "size,target\n1\n")], tmp_path / "out")
    started.append(process)
    with pytest.raises(
        PlatformError, match=r"the validation of the data did not finish: (.|\n)*IsADirectoryError"
    ):
        process.result(PATIENCE)


def test_a_process_that_takes_too_long_is_ended(tmp_path, started):
    process = ValidationProcess(_spec(), [_data(tmp_path, IRIS)], tmp_path / "out")
    started.append(process)
    with pytest.raises(PlatformError, match=r"took longer than 0\.05 s"):
        process.result(0.05)
    assert process.finished


def test_it_runs_at_low_priority_and_ends_with_the_process_that_started_it(tmp_path):
    parent = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from dmls_core.data.validation import ValidationProcess\n"
        "from dmls_core.spec import Spec\n"
        "import json\n"
        "spec = Spec.from_json(json.loads(sys.argv[1]))\n"
        "process = ValidationProcess(spec, [Path(sys.argv[2])], Path(sys.argv[3]))\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    data = _data(tmp_path, IRIS)
    command = [sys.executable, "-c", parent, _spec().canonical().decode(), str(data), str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started_by:
        child = int(started_by.stdout.readline())
        deadline = time.monotonic() + PATIENCE
        while os.getpriority(os.PRIO_PROCESS, child) != min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.2)  # for the line after the one that lowers the priority
        started_by.send_signal(signal.SIGKILL)
    while _lives(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert not (tmp_path / "out" / "validation.json").exists()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
