"""Make a Python environment with uv, or with the standard library where there is no uv."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from dmls_core.devstack.service import last_lines
from dmls_core.errors import PlatformError

SECONDS = 600


def find_uv(project: Path) -> str | None:
    """Return uv: beside this Python, in the project's or this environment's ``.tools``, or on ``PATH``."""
    tools = [root / ".tools" / "uv" / "bin" for root in (project, Path(sys.prefix).parent)]
    for place in (sysconfig.get_path("scripts"), *map(str, tools), None):
        if found := shutil.which("uv", path=place):
            return found
    return None


def make_environment(
    folder: Path,
    requirements: Path,
    python: list[str],
    uv: str | None,
    environment: dict[str, str],
    log: Path,
) -> None:
    """Make a virtual environment that holds exactly what a locked requirement file lists.

    Args:
        folder: of the new environment; what is there is replaced.
        requirements: lines with hashes; nothing else is installed, dependencies neither.
        python: uv's words for the interpreter to use.
        uv: uv's path; ``None``: the standard library's ``venv`` and ``pip``, with this interpreter.
        environment: of the commands.
        log: where they write.

    Raises:
        PlatformError: a command failed.
    """
    options = ["--no-deps", "--require-hashes", "-r", str(requirements)]
    if uv:
        commands = [
            [uv, "venv", "--quiet", "--clear", "--no-project", *python, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), *options],
        ]
    else:
        pip = [
            str(folder / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        commands = [[sys.executable, "-m", "venv", "--clear", str(folder)], [*pip, *options]]
    with log.open("ab") as stream:
        for command in commands:
            try:
                subprocess.run(
                    command,
                    check=True,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    timeout=SECONDS,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise PlatformError(
                    f"{' '.join(command[:3])} failed\n{last_lines(log)}\nsee {log}"
                ) from error
