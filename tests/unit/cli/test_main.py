"""The command line as a whole: what it offers, what it imports, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from dmls_core.cli import job_commands
from dmls_core.errors import DataError, StoreError, ValidationIssue

COMMANDS = "demo up down env doctor validate schema train submit jobs show logs approve predict".split()

HEAVY = (
    "airflow boto3 great_expectations httpx lightgbm mlflow numpy optuna pandas polars pyarrow sklearn "
    "treelite tritonclient xgboost"
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
    assert "``" not in done.out, "Rich takes a word in brackets for markup, and leaves it out"


def test_deploy_is_an_alias_of_approve(dmls):
    done = dmls("deploy", "--help")
    assert done.code == 0
    assert "Alias of dmls approve." in done.out.replace("`", "")
    assert dmls("deploy", "lab/none").err == dmls("approve", "lab/none").err != ""


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


def test_env_prints_what_clients_need(dmls, tmp_path):
    folder = tmp_path / ".dmls"
    folder.mkdir()
    settings = {
        "airflow_url": "http://127.0.0.1:8080",
        "root": "s3://dmls/a b",
        "mlflow_uri": "http://127.0.0.1:5000",
        "triton_http": "127.0.0.1:8000",
        "triton_grpc": "127.0.0.1:8001",
        "triton_key": "hush",
    }
    environment = {"AWS_ACCESS_KEY_ID": "me", "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "NO_PROXY": "x"}
    state = {"settings": settings, "environment": environment}
    (folder / "platform.json").write_text(json.dumps(state))

    done = dmls("env", "--json")
    shell = subprocess.run(
        ["sh", "-c", f'{dmls("env").out}\necho "$DMLS_ROOT"'], capture_output=True, text=True
    )

    assert json.loads(done.out)["environment"] == {
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "DMLS_AIRFLOW_URL": "http://127.0.0.1:8080",
        "DMLS_HOME": str(folder),
        "DMLS_ROOT": "s3://dmls/a b",
        "DMLS_TRITON_GRPC": "127.0.0.1:8001",
        "DMLS_TRITON_HTTP": "127.0.0.1:8000",
        "MLFLOW_TRACKING_URI": "http://127.0.0.1:5000",
    }
    assert shell.stdout == "s3://dmls/a b\n"


def test_env_needs_a_running_platform(dmls, tmp_path):
    done = dmls("env")
    assert (done.code, done.out) == (3, "")
    assert "dmls up" in done.err
    assert str(tmp_path / ".dmls") in done.err.replace("\n", "")


def test_doctor_lists_the_installed_extensions(dmls, monkeypatch):
    monkeypatch.setattr("dmls_core.devstack.doctor.examine", lambda _: [])

    listed = json.loads(dmls("doctor", "--json").out)["extensions"]
    text = dmls("doctor").out

    assert {"dmls.engines", "dmls.metrics", "dmls.stores"} <= {entry["group"] for entry in listed}
    assert {entry["name"] for entry in listed if entry["group"] == "dmls.stores"} >= {"file", "s3"}
    assert all(entry["package"] and entry["path"] for entry in listed)
    assert "stores     dmls " in text


def test_version(dmls):
    assert dmls("--version").out.startswith("dmls 0.")


def test_wrong_usage_is_2(dmls):
    assert dmls("show").code == 2
    assert dmls("nonsense").code == 2


def test_a_mistake_of_the_user_is_1_and_shows_place_key_and_hint(dmls, monkeypatch):
    issue = ValidationIssue(
        "is no column", file="spec.toml", line=3, column=9, key="columns.target", hint="name one of a, b"
    )
    monkeypatch.setattr(
        job_commands, "open_root", raiser(DataError([issue, ValidationIssue("second [thing]")]))
    )
    done = dmls("jobs")
    assert done.code == 1
    assert "spec.toml:3:9: error: columns.target: is no column" in done.err
    assert "hint: name one of a, b" in done.err
    assert "second [thing]" in done.err
    assert "2 issues" in done.err
    assert "Traceback" not in done.err


def test_a_fault_of_the_platform_is_3(dmls, monkeypatch):
    monkeypatch.setattr(job_commands, "open_root", raiser(StoreError("S3 does not answer")))
    done = dmls("jobs")
    assert (done.code, done.err) == (3, "error: S3 does not answer\n")


def test_the_unforeseen_is_3_and_one_line(dmls, monkeypatch):
    monkeypatch.setattr(job_commands, "open_root", raiser(KeyError("x")))
    done = dmls("jobs")
    assert done.code == 3
    assert done.err.splitlines() == ["internal error: KeyError: 'x'", "set DMLS_DEBUG=1 for the stack trace"]


def test_debugging_shows_the_stack(dmls, monkeypatch):
    monkeypatch.setenv("DMLS_DEBUG", "1")
    monkeypatch.setattr(job_commands, "open_root", raiser(KeyError("x")))
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
