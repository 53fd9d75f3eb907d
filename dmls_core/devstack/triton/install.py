"""The environment of PyTriton's server and the FIL stand-in, separate from DMLS's."""

from __future__ import annotations

import ctypes
import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import dmls_core
from dmls_core.devstack.private_files import make_private_folder
from dmls_core.devstack.programs import find_uv, make_environment
from dmls_core.errors import PlatformError

REQUIREMENTS = "triton.txt"

PYTHONS = ((3, 11), (3, 12))
"""Python versions that both the server's Python backend and NumPy before 2 support."""

STAND_IN = Path(__file__).with_name("fil_stand_in.py")

COMPLETE = "complete"
"""Written last: an environment without it is incomplete."""

_QUERY = """
import json, sys, sysconfig
print(json.dumps([sysconfig.get_path("purelib"), sys.base_prefix, "%d.%d" % sys.version_info[:2]]))
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """PyTriton's server as installed."""

    program: Path
    backends: Path
    libraries: tuple[Path, ...]
    """Folders of the shared libraries that the backend needs."""
    scripts: Path
    """Folder that must be first on ``PATH``: the backend finds its packages by the Python in it."""


def find_requirements() -> Path:
    """Return the locked requirement file of the installed package or of the repository."""
    package = Path(dmls_core.__file__).parent
    places = (package / "devstack" / "requirements", package.parent / "requirements")
    for place in places:
        if (place / REQUIREMENTS).is_file():
            return place / REQUIREMENTS
    raise PlatformError(f"{REQUIREMENTS} is missing from {' and '.join(map(str, places))}: reinstall DMLS")


def install(state: Path, environment: dict[str, str], log: Path) -> Environment:
    """Return the environment; create it if it is missing, incomplete or of other requirements."""
    requirements = find_requirements()
    uv = find_uv(state.parent)
    python = _choose_python(uv)
    key = hashlib.sha256(requirements.read_bytes() + " ".join(python).encode()).hexdigest()[:12]
    folder = make_private_folder(state / "triton") / f"environment-{key}"
    if not (folder / COMPLETE).exists():
        for old in folder.parent.glob("environment-*"):
            shutil.rmtree(old, ignore_errors=True)
        make_environment(folder, requirements, python, uv, environment, log)
    answer = subprocess.run(
        [folder / "bin" / "python", "-I", "-c", _QUERY],
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    packages, base, version = json.loads(answer.stdout)
    server = Path(packages) / "pytriton" / "tritonserver"
    backends = folder / "backends"
    if not (folder / COMPLETE).exists():
        shutil.copytree(server / "backends" / "python", backends / "python", dirs_exist_ok=True)
        stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
        shutil.copy(stub, backends / "python")
        (folder / COMPLETE).touch()
    # The stand-in is part of DMLS: a newer DMLS replaces it in an old environment.
    (backends / "fil").mkdir(exist_ok=True)
    shutil.copyfile(STAND_IN, backends / "fil" / "model.py")
    return Environment(
        program=server / "bin" / "tritonserver",
        backends=backends,
        libraries=(Path(packages) / "nvidia_pytriton.libs", Path(base) / "lib"),
        scripts=folder / "bin",
    )


def _choose_python(uv: str | None) -> list[str]:
    """Return uv's options for the interpreter: this one if it fits, else one that uv has or fetches."""
    version = sys.version_info[:2]
    if version in PYTHONS and _has_shared_library():
        return ["--python", sys.executable]
    if uv:
        return ["--managed-python", "--python", "3.12"]
    raise PlatformError(
        f"PyTriton's server needs Python 3.11 or 3.12 with its shared library, and {sys.executable} is "
        f"{version[0]}.{version[1]}, or without it: install uv or libpython3.11, "
        "or set DMLS_TRITON_SERVER to a genuine tritonserver"
    )


def _has_shared_library() -> bool:
    name = f"libpython{sys.version_info[0]}.{sys.version_info[1]}.so.1.0"
    if (Path(sysconfig.get_config_var("LIBDIR") or "/") / name).exists():
        return True
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
