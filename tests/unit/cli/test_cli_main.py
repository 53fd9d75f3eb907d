"""The command line as a whole: what it offers, what it imports, how it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from dmls_core.cli import jobs
from dmls_core.errors import DataError, StoreError, ValidationIssue

COMMANDS = "demo up down doctor validate schema train submit jobs show logs deploy predict".split()

HEAVY = (
    "airflow boto3 great_expectations lightgbm mlflow numpy optuna pandas polars pyarrow sklearn treelite "
    "tritonclient xgboost"
).split()


def test_help_lists_every_command(dmls):
    done = dmls("--help")
    assert done.code == 0
    words = done.out.split()
    assert [command for command in COMMANDS if command not in words] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_help(dmls, command):
    done = dmls(command, "--help")
    assert done.code == 0
    assert f"dmls {command}" in done.out


def test_starting_the_command_imports_nothing_heavy():
    program = f"import sys, dmls_core.cli.main; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_takes_little_processor_time():
    def cost() -> float:
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "dmls_core.cli", "--help"], check=True, stdout=subprocess.DEVNULL
        )
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    # The aim is 0.5 s with compiled bytecode; twice that leaves room for a busy machine.
    assert min(cost() for _ in range(3)) < 1.0


def test_version(dmls):
    assert dmls("--version").out.startswith("dmls 0.")


def test_wrong_usage_is_2(dmls):
    assert dmls("show").code == 2
    assert dmls("nonsense").code == 2


def test_a_mistake_of_the_user_is_1_and_shows_place_key_and_hint(dmls, monkeypatch):
    issue = ValidationIssue(
        "is no column", file="spec.toml", line=3, column=9, key="columns.target", hint="name one of a, b"
    )
    monkeypatch.setattr(jobs, "open_root", raiser(DataError([issue, ValidationIssue("second [thing]")])))
    done = dmls("jobs")
    assert done.code == 1
    assert "spec.toml:3:9: error: columns.target: is no column" in done.err
    assert "hint: name one of a, b" in done.err
    assert "second [thing]" in done.err
    assert "2 issues" in done.err
    assert "Traceback" not in done.err


def test_a_fault_of_the_platform_is_3(dmls, monkeypatch):
    monkeypatch.setattr(jobs, "open_root", raiser(StoreError("S3 does not answer")))
    done = dmls("jobs")
    assert (done.code, done.err) == (3, "error: S3 does not answer\n")


def test_the_unforeseen_is_3_and_one_line(dmls, monkeypatch):
    monkeypatch.setattr(jobs, "open_root", raiser(KeyError("x")))
    done = dmls("jobs")
    assert done.code == 3
    assert done.err.splitlines() == ["internal error: KeyError: 'x'", "set DMLS_DEBUG=1 for the stack trace"]


def test_debugging_shows_the_stack(dmls, monkeypatch):
    monkeypatch.setenv("DMLS_DEBUG", "1")
    monkeypatch.setattr(jobs, "open_root", raiser(KeyError("x")))
    monkeypatch.setattr("sys.argv", ["dmls", "jobs"])
    from dmls_core.cli.main import main

    with pytest.raises(KeyError):
        main()


def test_without_a_platform_the_error_says_how_to_get_one(dmls):
    done = dmls("jobs")
    assert done.code == 3
    assert "DMLS_ROOT" in done.err
    assert "dmls up" in done.err


def raiser(error: Exception):
    def fail(*_: object) -> None:
        raise error

    return fail
