from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from dmls_core.errors import PlatformError
from dmls_core.settings import (
    ENVIRONMENT,
    GROUPS,
    DataLimits,
    ProcessSettings,
    ServingLimits,
    Settings,
    SpecLimits,
    load_settings,
    state_folder,
)

ROOT = Path(__file__).parents[2]


def test_a_variable_sets_its_field_and_the_others_keep_their_defaults(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DMLS_DATA_ROWS", "7")
    assert DataLimits.from_environment() == DataLimits(rows=7)
    monkeypatch.setenv("DMLS_DATA_ROWS", "8")
    assert DataLimits.from_environment() == DataLimits(rows=8)
    monkeypatch.setenv("DMLS_DATA_ROWS", "")
    assert DataLimits.from_environment() == DataLimits()


@pytest.mark.parametrize(("text", "value"), [("1_000", 1_000), (" 5 ", 5)])
def test_a_limit_may_have_underscores_as_in_toml_and_blanks_around_it(
    text: str, value: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DMLS_SPEC_TRIALS", text)
    assert SpecLimits.from_environment() == SpecLimits(trials=value)


@pytest.mark.parametrize("text", ["0", "-1", "1e3", "many", "1.5", "0x10", "1__0", "1 000", "9" * 5000])
def test_a_wrong_limit_is_one_line_that_names_the_variable(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DMLS_SPEC_TRIALS", text)
    with pytest.raises(PlatformError) as error:
        SpecLimits.from_environment()
    assert str(error.value) == f"DMLS_SPEC_TRIALS must be a positive integer, not {text[:40]!r}"


def test_a_missing_setting_names_its_variable():
    with pytest.raises(
        PlatformError, match="no embedded platform runs from .* or MLFLOW_TRACKING_URI to the"
    ):
        Settings().require("mlflow_uri")


def test_an_activated_environment_finds_its_platform_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("DMLS_HOME", raising=False)
    (tmp_path / "clone/.venv").mkdir(parents=True)
    (tmp_path / "here/below").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "clone/.venv"))
    monkeypatch.chdir(tmp_path / "here/below")
    assert state_folder() == tmp_path / "here/below/.dmls"
    (tmp_path / "clone/.dmls").mkdir()
    assert state_folder() == tmp_path / "clone/.dmls"
    (tmp_path / "here/.dmls").mkdir()
    assert state_folder() == tmp_path / "here/.dmls"


def test_a_file_in_place_of_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DMLS_HOME", str(tmp_path / "file"))
    assert state_folder() == tmp_path / "file"
    monkeypatch.setenv("DMLS_HOME", "x" * 300)
    assert load_settings().root == ""
    monkeypatch.setenv("DMLS_HOME", str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.raises(PlatformError, match=r"^DMLS_HOME must be a folder, not the file .*/file$"):
        state_folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_the_platform_of_another_user_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`dmls jobs` ended with an internal error in a folder below one with another user's platform."""
    monkeypatch.delenv("DMLS_HOME", raising=False)
    (tmp_path / "theirs/.dmls").mkdir(mode=0o700, parents=True)
    (tmp_path / "theirs/.dmls/platform.json").write_text('{"settings": {"triton_http": "127.0.0.1:1"}}')
    (tmp_path / "theirs/below").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "theirs/.venv"))
    os.setreuid(65534, 0)  # os.access asks for the real user
    try:
        monkeypatch.chdir(tmp_path / "theirs/below")
        assert state_folder() == tmp_path / "theirs/below/.dmls"
        monkeypatch.chdir(tmp_path / "theirs")
        assert load_settings().triton_http == ""
    finally:
        os.setreuid(0, 0)
    assert state_folder() == tmp_path / "theirs/.dmls"
    assert load_settings().triton_http == "127.0.0.1:1"


def test_variables_win_over_the_state_of_the_embedded_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for variable in ENVIRONMENT.values():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DMLS_HOME", str(tmp_path))
    (tmp_path / "platform.json").write_text(
        '{"settings": {"root": "s3://theirs", "airflow_url": "http://a"}}'
    )
    monkeypatch.setenv("DMLS_ROOT", "s3://mine")
    settings = load_settings()
    assert (settings.root, settings.airflow_url) == ("s3://mine", "http://a")


@pytest.mark.parametrize(("address", "login"), [("http://m", "admin"), ("http://other", None)])
def test_the_platform_s_login_is_for_its_own_mlflow_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, login: str | None
):
    # Set and deleted, so that the test's end removes what load_settings adds.
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    state = {
        "settings": {"mlflow_uri": "http://m"},
        "environment": {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": "secret"},
    }
    (tmp_path / "platform.json").write_text(json.dumps(state))
    monkeypatch.setenv("DMLS_HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert load_settings().mlflow_uri == address
    assert os.environ.get("MLFLOW_TRACKING_USERNAME") == login


def test_every_variable_has_a_description_and_belongs_to_one_group():
    names = [name for group in GROUPS for name in group.variables().values()]
    assert len(set(names)) == len(names)
    for group in GROUPS:
        assert all(field.metadata["description"] for field in fields(group))


def test_the_package_reads_no_other_variable_of_its_own():
    declared = {name for group in GROUPS for name in group.variables().values()}
    found = {
        name
        for path in (ROOT / "dmls_core").rglob("*.py")
        for name in re.findall(r"[\"`]{1,2}(DMLS_[A-Z_]*[A-Z])[\"`=]", path.read_text())
    }
    assert ProcessSettings.variable("team") in found
    assert found - declared == set()


def test_settings_import_and_read_without_pydantic():
    code = """
import sys
from dataclasses import fields
from dmls_core.settings import DataLimits, SpecLimits, load_settings
load_settings(), DataLimits.from_environment(), SpecLimits.from_environment()
print([name for name in ("pydantic", "pydantic_settings", "asyncio") if name in sys.modules])
"""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("DMLS_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment | {"DMLS_ROOT": "s3://bucket"},
    )
    assert done.stdout.strip() == "[]"


def test_a_limit_that_is_off_by_default_may_be_0(monkeypatch: pytest.MonkeyPatch):
    for text, expected in (("", 0), ("0", 0), ("2_000", 2000)):
        monkeypatch.setenv("DMLS_SERVING_SHARED_BYTES", text)
        assert ServingLimits.from_environment().shared_bytes == expected
    monkeypatch.setenv("DMLS_SERVING_SHARED_BYTES", "-1")
    with pytest.raises(PlatformError, match="must be an integer from 0 on, not '-1'"):
        ServingLimits.from_environment()
