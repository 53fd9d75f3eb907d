"""Each example plug-in installs from its folder without a network, is listed, and passes its own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PLUGINS = sorted(path.parent for path in Path(__file__).parents[2].glob("examples/plugins/*/pyproject.toml"))


@pytest.fixture(scope="module", params=PLUGINS, ids=lambda path: path.name)
def plugin(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture(scope="module")
def installed(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package, for ``PYTHONPATH``."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(plugin, folder / "source")
    uv = Path(sys.executable).with_name("uv")
    command = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    ]
    command += ["--python", sys.executable, "--target", folder / "site", source]
    subprocess.run(command, check=True, timeout=120)
    return folder / "site"


def run(installed: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW")}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment | {"PYTHONPATH": str(installed)},
        timeout=300,
    )


def test_the_entry_point_is_listed(plugin: Path, installed: Path, tmp_path: Path):
    project = tomllib.loads((plugin / "pyproject.toml").read_text())["project"]
    code = (
        "from dmls_core.extensions import installed; [print(e.group, e.name, e.package) for e in installed()]"
    )
    done = run(installed, "-c", code, cwd=tmp_path)
    assert done.stderr == ""
    ((group, entries),) = project["entry-points"].items()
    for name in entries:
        assert f"{group} {name} {project['name']} {project['version']}" in done.stdout.splitlines()


def test_the_example_passes_its_tests(plugin: Path, installed: Path, tmp_path: Path):
    for path in plugin.glob("test_*.py"):
        shutil.copy(path, tmp_path)
    # Without plugins of other packages, which take seconds of CPU time to load.
    options = ["-q", "--disable-plugin-autoload", "-p", "no:cacheprovider", "-c", os.devnull]
    options += ["--rootdir", str(tmp_path)]
    done = run(installed, "-m", "pytest", *options, str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "failed" not in done.stdout


def test_a_store_is_opened_by_its_scheme(plugin: Path, installed: Path, tmp_path: Path):
    if plugin.name != "dmls-fsspec-store":
        pytest.skip("not a store")
    code = f"""
from dmls_core.store import open_store
store = open_store("fsspec+file://{tmp_path}/store")
store.create("a/b", b"1")
print(type(store).__name__, open_store(store.url).get("a/b"))
"""
    done = run(installed, "-c", code, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["FsspecStore b'1'"]
