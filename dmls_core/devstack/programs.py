"""Find the programs of Python packages, and create Python environments."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import sysconfig
from pathlib import Path

from dmls_core.devstack.supervisor import run_logged
from dmls_core.errors import PlatformError

_INSTALL_HINT = "install DMLS with its platform extra: pip install 'dmls[platform]'"


def find_program(name: str, hint: str = _INSTALL_HINT) -> str:
    """Return the path of a program next to this Python or on ``PATH``; else raise an error with ``hint``."""
    path = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if not path:
        raise PlatformError(f"{name} is not installed: {hint}")
    return path


def package_folder(package: str) -> Path:
    """Return the folder of a package without importing it; raise ``PlatformError`` if it is missing."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise PlatformError(f"{package} is not installed: {_INSTALL_HINT}")
    return Path(spec.submodule_search_locations[0])


_INSTALL_SECONDS = 600


def find_uv(project: Path) -> str | None:
    """Return uv: next to this Python, in the project's or this environment's ``.tools``, or on ``PATH``."""
    tools = [root / ".tools" / "uv" / "bin" for root in (project, Path(sys.prefix).parent)]
    for folder in (sysconfig.get_path("scripts"), *map(str, tools), None):
        if uv := shutil.which("uv", path=folder):
            return uv
    return None


def make_environment(
    folder: Path,
    requirements: Path,
    python: list[str],
    uv: str | None,
    environment: dict[str, str],
    log: Path,
) -> None:
    """Create a virtual environment with exactly the packages of a locked requirement file.

    It replaces the content of ``folder``. ``requirements`` has hashes; dependencies that it does not list are
    not installed. ``python`` holds uv's options for the interpreter; without ``uv``, ``venv`` and ``pip`` of
    this interpreter are used.
    """
    options = ["--no-deps", "--require-hashes", "-r", str(requirements)]
    if uv:
        commands = [
            [uv, "venv", "--quiet", "--clear", "--no-project", *python, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), *options],
        ]
    else:
        python_program = str(folder / "bin" / "python")
        pip = [python_program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        commands = [[sys.executable, "-m", "venv", "--clear", str(folder)], [*pip, *options]]
    for command in commands:
        run_logged(command, environment, log, _INSTALL_SECONDS)
