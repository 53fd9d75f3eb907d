from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dmls_core.devstack.private_files import (
    exclusive,
    make_private_folder,
    read_json,
    write_private,
    write_private_json,
)
from dmls_core.errors import PlatformError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_file_is_never_readable_by_others(tmp_path: Path):
    file = tmp_path / "secret"
    old = os.umask(0)
    try:
        assert write_private(file, "one")
        assert mode(file) == 0o600
        file.chmod(0o644)
        assert not write_private(file, "one"), "unchanged"
        assert mode(file) == 0o600
        assert write_private(file, "two")
    finally:
        os.umask(old)
    assert file.read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["secret"]


def test_a_folder_made_open_by_somebody_is_closed(tmp_path: Path):
    folder = tmp_path / "a"
    folder.mkdir()
    folder.chmod(0o755)
    assert mode(make_private_folder(folder)) == 0o700


def test_json_goes_round(tmp_path: Path):
    assert read_json(tmp_path / "none") is None
    write_private_json(tmp_path / "some", {"a": [1, "ü"]})
    assert read_json(tmp_path / "some") == {"a": [1, "ü"]}


HOLD = """
import sys, pathlib
from dmls_core.devstack.private_files import exclusive
with exclusive(pathlib.Path(sys.argv[1]), 5):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_keeps_others_out_and_dies_with_its_holder(tmp_path: Path):
    lock = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(PlatformError, match="another"), exclusive(lock, 0.2):
            pass
        holder.kill()
        with exclusive(lock, 5):
            pass
    finally:
        holder.kill()
        holder.communicate()
