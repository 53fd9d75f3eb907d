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

from dmls_core.data.validation import LARGE, ValidationProcess, _outcome
from dmls_core.data.validation.checks import check
from dmls_core.data.validation.expectations import TYPES, plan_expectations
from dmls_core.data.validation.facts import gather_facts
from dmls_core.errors import PlatformError
from dmls_core.settings import DataLimits
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
        ): "60 of 63 values do not meet it, such as 5.1, 4.9, 4.7",
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


def test_great_expectations_comes_to_the_same_results(tmp_path):
    import great_expectations as gx
    import pandas as pd
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    frame = pd.DataFrame(
        {
            "size": [0.5, None, 2.5, 2.5, 9.0, None, 7.0, 1.0],
            "hole": [None, None, None, None, None, None, None, 1.0],
            "mixed": [1.0, 2.0, 3.0, "x", "y", 4.0, 5.0, None],
            "code": ["a1", "b2", None, "a1", "c", "d4", "e", "f6"],
            "target": ["u", "v", "u", None, "u", "v", "u", "v"],
        }
    )
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False)
    expectations = {
        "min_rows": 9,
        "max_missing": 0.8,
        "columns": {
            "size": {"min": 1, "max": 8, "unique": True, "values": [0.5, 2.5, 9]},
            "code": {"pattern": r"^[a-z]\d$", "values": ["a1", "b2"], "unique": True, "max_missing": 0.125},
        },
    }
    spec = _spec(expectations)
    table = gather_facts(spec, [path], DataLimits())
    planned = plan_expectations(spec, table)
    assert len({item.expectation_type for item in planned}) == len(TYPES)

    context = gx.get_context(mode="ephemeral")
    batch = (
        context.data_sources.add_pandas("data")
        .add_dataframe_asset("data")
        .add_batch_definition_whole_dataframe("all")
        .get_batch({"dataframe": frame})
    )
    for item in planned:
        column = {"column": item.column} if item.column else {}
        theirs = batch.validate(
            ExpectationConfiguration(
                type=TYPES[item.expectation_type], kwargs=column | item.arguments
            ).to_domain_obj()
        )
        ours = check(item, table)
        assert ours.success == theirs.success, item
        assert ours.unexpected == theirs.result.get("unexpected_count", 0), item
        assert item.expectation_type == "numbers" or ours.observed == theirs.result.get("observed_value"), (
            item
        )


def test_a_wide_table_is_summarized(tmp_path, started):
    names = [f"x{number}" for number in range(150)]
    row = ",".join(["1.5"] * 148)
    content = ",".join([*names, "target"]) + "\n" + f"{row},,a<b,u\n{row},,a<b,v\n" * 3
    process = ValidationProcess(
        _spec({"columns": {"x120": {"min": 1}}}), [_data(tmp_path, content)], tmp_path / "out"
    )
    started.append(process)
    validation = process.result(PATIENCE)
    assert [item.column for item in validation.failed] == ["x148"]
    assert process.verdict == validation
    assert len({item.column for item in validation.expectations}) == 152
    page = (tmp_path / "out" / "data_docs" / "index.html").read_text()
    shown = set(re.findall(r"\bx\d+\b", page))
    assert {"x148", "x120", "x0"} <= shown
    assert len(shown) == 99
    assert "This page shows 100 of 151 columns" in page


def test_bounds_of_numbers(tmp_path):
    content = "size,target\n0.1,a\n0.2,b\n16777217,b\nNA,a\n"
    expectations = {"columns": {"size": {"min": 0.1, "max": 16_777_216, "values": [0.1, 0.2, 16_777_217]}}}
    spec = _spec(expectations)
    table = gather_facts(spec, [_data(tmp_path, content)], DataLimits())
    outcomes = [
        _outcome(expectation, check(expectation, table)) for expectation in plan_expectations(spec, table)
    ]
    (failed,) = [outcome for outcome in outcomes if not outcome.success]
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
    assert failed.message.startswith("data.csv:3: target: the record has 1 field, the header 2")


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


def test_data_docs_are_written_at_low_priority_and_end_with_the_process_that_started_them(tmp_path):
    parent = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from dmls_core.data.validation import LARGE, ValidationProcess\n"
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
    assert json.loads((tmp_path / "out" / "validation.json").read_text())["success"]
    assert not (tmp_path / "out" / "data_docs").exists()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_data_docs_of_a_large_table_are_written_after_the_search(tmp_path):
    numbers = ",".join(["1.5"] * 40)
    header = ",".join(f"x{at}" for at in range(40)) + ",target\n"
    data = _data(tmp_path, header + f"{numbers},a\n{numbers},b\n" * (LARGE // 80))
    process = ValidationProcess(_spec(), [data], tmp_path / "out")
    deadline = time.monotonic() + PATIENCE
    while process.verdict is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == os.getpriority(os.PRIO_PROCESS, 0)

    assert process.result(PATIENCE).success

    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "data_docs",
        "validation.json",
        "validation.log",
    }
