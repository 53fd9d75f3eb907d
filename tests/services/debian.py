"""A program out of a Debian package, unpacked into a folder and never installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def find_program(package: str, program: str, folder: Path) -> Path:
    """Return the path of a program: this machine's own, or that of the Debian package.

    Args:
        package: the package's name.
        program: its path in the package, such as ``usr/bin/prometheus``.
        folder: where to unpack it.

    Raises:
        FileNotFoundError: this machine has neither it nor a way to fetch it.
    """
    if found := shutil.which(Path(program).name):
        return Path(found)
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise FileNotFoundError(f"no {package}, and no apt-get to fetch it with")
    folder.mkdir(exist_ok=True)
    download = ["apt-get", "download", "-qq", package]
    for command in (download, ["apt-get", "update", "-qq"], download):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if command is download and done.returncode == 0:
            (file,) = folder.glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "--extract", file, folder], check=True)
            return folder / program
    raise FileNotFoundError(f"apt-get could not fetch {package}: {done.stderr[-500:]}")
