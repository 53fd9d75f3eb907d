"""Triton: a genuine server with its FIL backend if one is installed, else PyTriton's with a stand-in.

PyTriton's server and the FIL stand-in have an environment separate from DMLS's.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

import dmls_core
from dmls_core import extensions, sandbox
from dmls_core.devstack import secret_arguments
from dmls_core.devstack.context import Context
from dmls_core.devstack.private_files import make_private_folder
from dmls_core.devstack.programs import find_uv, make_environment
from dmls_core.devstack.supervisor import Service, http_answers
from dmls_core.errors import PlatformError
from dmls_core.hardware import available_memory
from dmls_core.serving.formats.base import serving_format
from dmls_core.serving.formats.treelite.fil_backend import DESCRIPTIONS
from dmls_core.serving.triton.backends import BackendKind
from dmls_core.settings import INFERENCE_LOG, TRITON_KEY_HEADER, ProcessSettings

_REQUIREMENTS = "triton.txt"

_PYTHONS = ((3, 11), (3, 12))
"""Python versions that both the server's Python backend and NumPy before 2 support."""

_COMPLETE = "complete"
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
    folders = (package / "devstack" / "requirements", package.parent / "requirements")
    for path in folders:
        if (path / _REQUIREMENTS).is_file():
            return path / _REQUIREMENTS
    raise PlatformError(f"{_REQUIREMENTS} is missing from {' and '.join(map(str, folders))}: reinstall DMLS")


def install(state: Path, environment: dict[str, str], log: Path) -> Environment:
    """Return the environment; create it if it is missing, incomplete or of other requirements."""
    requirements = find_requirements()
    uv = find_uv(state.parent)
    python = _choose_python(uv)
    key = hashlib.sha256(requirements.read_bytes() + " ".join(python).encode()).hexdigest()[:12]
    folder = make_private_folder(state / "triton") / f"environment-{key}"
    if not (folder / _COMPLETE).exists():
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
    if not (folder / _COMPLETE).exists():
        shutil.copytree(server / "backends" / "python", backends / "python", dirs_exist_ok=True)
        stub = server / "python_backend_stubs" / version / "triton_python_backend_stub"
        shutil.copy(stub, backends / "python")
        (folder / _COMPLETE).touch()
    # The stand-ins are part of DMLS: a newer DMLS replaces them in an old environment.
    for format_name in extensions.names("dmls.serving_formats"):
        serving = serving_format(format_name)
        for name, source in serving.stand_in().items():
            (backends / serving.backend).mkdir(exist_ok=True)
            (backends / serving.backend / name).write_bytes(source.read_bytes())
    return Environment(
        program=server / "bin" / "tritonserver",
        backends=backends,
        libraries=(Path(packages) / "nvidia_pytriton.libs", Path(base) / "lib"),
        scripts=folder / "bin",
    )


def _choose_python(uv: str | None) -> list[str]:
    """Return uv's options for the interpreter: this one if it fits, else one that uv has or fetches."""
    version = sys.version_info[:2]
    if version in _PYTHONS and _has_shared_library():
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


PORTS = ("triton_http", "triton_grpc", "triton_metrics")

_SERVER_VARIABLE = ProcessSettings.variable("triton_server")
_OPTIONS_VARIABLE = ProcessSettings.variable("triton_options")
_RESTRICTED = ("model-repository", "shared-memory", "logging", "trace")
"""Groups of Triton's endpoints that require the key."""

_RESTRICTION = "TRITON_RESTRICTION"
"""Variable with the groups and the key, as Triton's arguments have them."""

MEMORY_SHARE = 2
"""The server with the stand-in may allocate 1/2 of the machine's memory."""

THREAD_STACK = 2 << 20
"""Bytes of the stack of a thread there. Each model has a dozen threads: with the usual 8 MiB, a hundred
models would have half of the memory of a small machine in stacks that they never use."""

USUAL_PLACE = "/opt/tritonserver/bin/tritonserver"
_FIL_LIBRARY = "fil/libtriton_fil.so"


@dataclass(frozen=True, slots=True)
class TritonServer:
    """A server to run.

    Attributes:
        backends: folder of its backends; ``None`` for the server's default.
        genuine: whether its FIL backend is NVIDIA's, not the stand-in.
    """

    program: Path
    backends: Path | None
    genuine: bool
    environment: Mapping[str, str]

    @property
    def description(self) -> str:
        """Description in ``dmls doctor``."""
        return f"{self.program}, {DESCRIPTIONS['genuine' if self.genuine else 'stand-in']}"


def find_genuine() -> TritonServer | None:
    """Return the server in ``DMLS_TRITON_SERVER`` or an installed one; its FIL backend must be genuine."""
    named = os.environ.get(_SERVER_VARIABLE)
    candidates = [named] if named else [shutil.which("tritonserver"), USUAL_PLACE]
    for candidate in candidates:
        if candidate and Path(candidate).is_file():
            backends = Path(candidate).resolve().parent.parent / "backends"
            if (backends / _FIL_LIBRARY).is_file():
                return TritonServer(Path(candidate), backends, genuine=True, environment=_genuine(candidate))
    if named:
        raise PlatformError(
            f"{_SERVER_VARIABLE} is {named}, but there is no such program with ../backends/{_FIL_LIBRARY}"
        )
    return None


def running_backend(pid: int) -> BackendKind:
    """Return the FIL backend of the embedded platform's running server."""
    prefix = "--backend-directory="
    folders = (word.removeprefix(prefix) for word in psutil.Process(pid).cmdline() if word.startswith(prefix))
    return "genuine" if any((Path(folder) / _FIL_LIBRARY).is_file() for folder in folders) else "stand-in"


def _genuine(program: str) -> dict[str, str]:
    """Return what a genuine server needs in its environment; what the operator has set goes first."""
    libraries = Path(program).resolve().parent.parent / "lib"
    return {
        "LD_LIBRARY_PATH": _joined(os.environ.get("LD_LIBRARY_PATH"), str(libraries)),
        # Backends start programs of the server, and its Python backend the Python next to it.
        "PATH": _joined(os.environ.get("PATH"), str(Path(program).resolve().parent)),
        # One thread per instance: at two, OpenMP more than doubles the CPU time of a small request.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or "1",
    }


def _joined(*parts: str | None) -> str:
    return ":".join(part for part in parts if part)


def find_server(state: Path, environment: dict[str, str], log: Path) -> TritonServer:
    """Return the genuine server if there is one, else PyTriton's with the stand-in, installed if needed."""
    genuine = find_genuine()
    if genuine:
        return genuine
    installed = install(state, environment, log)
    libraries = [str(folder) for folder in installed.libraries]
    if inherited := environment.get("LD_LIBRARY_PATH"):
        libraries.append(inherited)
    return TritonServer(
        installed.program,
        installed.backends,
        genuine=False,
        environment={
            "LD_LIBRARY_PATH": ":".join(libraries),
            "PATH": f"{installed.scripts}:{environment.get('PATH', os.defpath)}",
            # Its Python must see only its own packages.
            "PYTHONPATH": "",
            "PYTHONNOUSERSITE": "1",
            "OMP_NUM_THREADS": "1",
        },
    )


def triton_service(context: Context, server: TritonServer) -> Service:
    """Return the service, which loads models on request, never by polling the folder."""
    context.model_repository.mkdir(parents=True, exist_ok=True)
    prefix = f"dmls-{context.identity.id}-"
    options = {
        "model-repository": context.model_repository,
        "model-control-mode": "explicit",
        "exit-on-error": "false",
        # One model that failed to load must not fail the readiness probe.
        "strict-readiness": "false",
        # Its Python backend can crash or hang the server when it starts several processes at once.
        "model-load-thread-count": 1,
        "exit-timeout-secs": 5,
        "metrics-config": "summary_latencies=true",
        # A killed server leaves 1 MiB for each process of a model, which its successor removes by the name.
        "backend-config": f"python,shm-region-prefix-name={prefix}",
        **{f"{endpoint}-address": "127.0.0.1" for endpoint in ("http", "grpc", "metrics")},
        **{
            f"{endpoint}-port": context.port(f"triton_{endpoint}") for endpoint in ("http", "grpc", "metrics")
        },
    }
    if server.backends:
        options["backend-directory"] = server.backends
    program, environment = [str(server.program)], dict(server.environment)
    if key := context.identity.credentials.get("triton_key"):
        # Clients that request predictions may do nothing else.
        environment[_RESTRICTION] = f"{','.join(_RESTRICTED)}:{TRITON_KEY_HEADER}={key}"
        program = [
            *(sys.executable, "-I", secret_arguments.__file__, str(server.program)),
            *("--http-restricted-api", f"@{_RESTRICTION}", "--grpc-restricted-protocol", f"@{_RESTRICTION}"),
        ]
    if not server.genuine:
        # It is of a release without --http-max-input-size: a request without a login makes it allocate any
        # memory. Beyond this limit it ends, not another process of the machine, and is started again.
        memory = available_memory() // MEMORY_SHARE
        program = sandbox.command(program, memory, detached=True, stack=THREAD_STACK)
    return Service(
        name="triton",
        command=[
            *program,
            "--disable-auto-complete-config",
            *(f"--{name}={value}" for name, value in options.items()),
            *shlex.split(os.environ.get(_OPTIONS_VARIABLE, "")),
        ],
        folder=make_private_folder(context.state / "triton"),
        environment=environment | {INFERENCE_LOG: str(make_private_folder(context.inference_log))},
        ready=lambda _: http_answers(f"{context.url('triton_http')}/v2/health/ready"),
        url=context.url("triton_http"),
        # With explicit control a restarted server would otherwise serve nothing.
        late_arguments=("dmls_core.serving.triton.startup:load_arguments", str(context.model_repository)),
        stale=(f"/dev/shm/{prefix}*",),  # noqa: S108 - the Python backend's shared memory
    )
