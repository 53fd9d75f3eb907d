"""The example store installs from its folder, is found by its scheme, and passes the suite."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugins" / "dmls-fsspec-store"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, for ``PYTHONPATH``."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(EXAMPLE, folder / "source")
    uv = Path(sys.executable).with_name("uv")
    options = ["--quiet", "--offline", "--no-index", "--no-deps", "--no-build-isolation"]
    command = [
        uv,
        "pip",
        "install",
        *options,
        "--python",
        sys.executable,
        "--target",
        folder / "site",
        source,
    ]
    subprocess.run(command, check=True, timeout=120)
    return folder / "site"


def run(installed: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=environment, timeout=300
    )


def test_the_entry_point_opens_a_store(installed: Path, tmp_path: Path):
    code = f"""
from dmls_core.extensions import installed
from dmls_core.store import open_store
store = open_store("fsspec+file://{tmp_path}/store")
store.create("a/b", b"1")
print(type(store).__name__, open_store(store.url).get("a/b"))
print([one.package for one in installed() if one.name == "fsspec"])
"""
    done = run(installed, "-c", code, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["FsspecStore b'1'", "['dmls-fsspec-store 0.1.0']"]


def test_the_example_passes_the_suite(installed: Path, tmp_path: Path):
    shutil.copy(EXAMPLE / "test_dmls_fsspec_store.py", tmp_path)
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    done = run(installed, "-m", "pytest", *options, str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "failed" not in done.stdout
