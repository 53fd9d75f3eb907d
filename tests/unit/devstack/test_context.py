from __future__ import annotations

import base64
import json
import stat
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import pytest

from dmls_core.devstack.context import Identity, ensure_runtime_folder, load_identity
from dmls_core.devstack.postgres import refuse_downgrade
from dmls_core.errors import PlatformError


def test_an_identity_is_made_once_and_kept_for_its_owner_alone(tmp_path: Path):
    file = tmp_path / "identity.json"
    made = load_identity(file)
    made.ports = {"s3": 20123}
    made.save(file)
    assert load_identity(file) == made
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_two_identities_share_no_secret(tmp_path: Path):
    one, other = (load_identity(tmp_path / name) for name in ("one", "other"))
    assert one.id != other.id
    assert set(one.credentials) == set(other.credentials)
    assert not set(one.credentials.values()) & set(other.credentials.values())
    assert len(base64.urlsafe_b64decode(one.credentials["airflow_fernet_key"])) == 32


def test_a_credential_that_an_older_release_did_not_have_is_added(tmp_path: Path):
    file = tmp_path / "identity.json"
    old = load_identity(file)
    kept = old.credentials.pop("postgres_password")
    del old.credentials["airflow_password"]
    old.credentials["postgres_password"] = kept
    old.save(file)
    assert load_identity(file).credentials["airflow_password"]
    assert load_identity(file).credentials["postgres_password"] == kept


def test_a_state_of_a_later_release_is_refused(tmp_path: Path):
    file = tmp_path / "identity.json"
    load_identity(file).save(file)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"schema": content["schema"] + 1, "other": 1}))
    with pytest.raises(PlatformError, match=r"a later release of DMLS wrote .*: install that release again"):
        load_identity(file)
    del content["schema"]
    with pytest.raises(TypeError, match="written_by_a_later_release"):
        Identity(**content)  # as releases do that ignore the schema

    file.write_text(json.dumps({**asdict(Identity("id", "/tmp/x", {"triton_key": "k"})), "schema": 1}))
    upgraded = load_identity(file)
    assert (upgraded.id, upgraded.credentials["triton_key"]) == ("id", "k")
    assert upgraded.credentials["signing_key"]


@pytest.mark.parametrize(
    ("written", "installed", "refused"),
    [("", "3.3.2", False), ("3.3.2", "3.3.2", False), ("3.3.2", "3.10.0", False), ("3.10.0", "3.3.2", True)],
)
def test_a_database_of_a_later_version_is_refused(written: str, installed: str, refused: bool):
    error = pytest.raises(PlatformError, match=f"Airflow {written} wrote its database, and {installed} is ")
    with error if refused else nullcontext():
        refuse_downgrade("Airflow", written, installed)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"id": 1, "what": 2}', "{"])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, content: str):
    file = tmp_path / "identity.json"
    file.write_text(content)
    with pytest.raises(PlatformError, match=r"identity\.json"):
        load_identity(file)


def test_the_runtime_folder_is_private_short_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    identity = Identity("id", "", {})
    try:
        ensure_runtime_folder(identity)
        folder = Path(identity.runtime)
        assert len(f"{folder}/tmp/pymp-12345678/listener-12345678") < 100
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        ensure_runtime_folder(identity)
        assert identity.runtime == str(folder)
    finally:
        (folder / "tmp").rmdir()
        folder.rmdir()


@pytest.mark.parametrize("lure", ["link", "open", "file"])
def test_a_runtime_folder_that_is_not_ours_alone_is_left_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch, lure: str
):
    import shutil
    import tempfile

    base = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(base))
    place = base / "dmls-known"
    try:
        if lure == "link":
            (base / "elsewhere").mkdir(mode=0o700)
            place.symlink_to(base / "elsewhere")
        elif lure == "open":
            place.mkdir()
            place.chmod(0o777)
        else:
            place.touch(0o600)
        identity = Identity("id", str(place), {})
        ensure_runtime_folder(identity)
        assert identity.runtime != str(place)
        assert Path(identity.runtime).parent == base
        assert not place.is_dir() or not list(place.iterdir())
    finally:
        shutil.rmtree(base)
