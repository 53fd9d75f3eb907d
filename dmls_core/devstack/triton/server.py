"""Choose the Triton server and configure it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dmls_core.devstack.context import Context
from dmls_core.devstack.private_files import make_private_folder
from dmls_core.devstack.service import Service, http_answers
from dmls_core.devstack.triton.install import install
from dmls_core.errors import PlatformError
from dmls_core.settings import INFERENCE_LOG, TRITON_KEY_HEADER, ProcessSettings

PORTS = ("triton_http", "triton_grpc", "triton_metrics")

SERVER_VARIABLE = ProcessSettings.variable("triton_server")
USUAL_PLACE = "/opt/tritonserver/bin/tritonserver"
FIL_LIBRARY = "fil/libtriton_fil.so"


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
        backend = (
            "genuine FIL backend" if self.genuine else "stand-in for the FIL backend (Treelite on the CPU)"
        )
        return f"{self.program}, {backend}"


def find_genuine() -> TritonServer | None:
    """Return the server in ``DMLS_TRITON_SERVER`` or an installed one; its FIL backend must be genuine."""
    named = os.environ.get(SERVER_VARIABLE)
    candidates = [named] if named else [shutil.which("tritonserver"), USUAL_PLACE]
    for candidate in candidates:
        if candidate and Path(candidate).is_file():
            backends = Path(candidate).resolve().parent.parent / "backends"
            if (backends / FIL_LIBRARY).is_file():
                return TritonServer(Path(candidate), backends, genuine=True, environment={})
    if named:
        raise PlatformError(
            f"{SERVER_VARIABLE} is {named}, but there is no such program with ../backends/{FIL_LIBRARY}"
        )
    return None


def find_server(state: Path, environment: dict[str, str], log: Path) -> TritonServer:
    """Return the genuine server if there is one, else PyTriton's with the stand-in, installed if needed."""
    genuine = find_genuine()
    if genuine:
        return genuine
    made = install(state, environment, log)
    libraries = [str(folder) for folder in made.libraries]
    if inherited := environment.get("LD_LIBRARY_PATH"):
        libraries.append(inherited)
    return TritonServer(
        made.program,
        made.backends,
        genuine=False,
        environment={
            "LD_LIBRARY_PATH": ":".join(libraries),
            "PATH": f"{made.scripts}:{environment.get('PATH', os.defpath)}",
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
        # With explicit control a restarted server would otherwise serve nothing.
        "load-model": "*",
        "exit-on-error": "false",
        # One model that failed to load must not fail the readiness probe.
        "strict-readiness": "false",
        "exit-timeout-secs": 5,
        "metrics-config": "summary_latencies=true",
        **{f"{kind}-address": "127.0.0.1" for kind in ("http", "grpc", "metrics")},
        **{f"{kind}-port": context.port(f"triton_{kind}") for kind in ("http", "grpc", "metrics")},
    }
    if not server.genuine:
        options["backend-config"] = f"python,shm-region-prefix-name={prefix}"
    if key := context.identity.credentials.get("triton_key"):
        # Clients that request predictions may not load models.
        options["http-restricted-api"] = f"model-repository:{TRITON_KEY_HEADER}={key}"
        options["grpc-restricted-protocol"] = f"model-repository:{TRITON_KEY_HEADER}={key}"
    if server.backends:
        options["backend-directory"] = server.backends
    return Service(
        name="triton",
        command=[
            str(server.program),
            "--disable-auto-complete-config",
            *(f"--{name}={value}" for name, value in options.items()),
        ],
        folder=make_private_folder(context.state / "triton"),
        environment={**server.environment, INFERENCE_LOG: str(make_private_folder(context.inference_log))},
        ready=lambda _: http_answers(f"{context.url('triton_http')}/v2/health/ready"),
        url=context.url("triton_http"),
        stale=(f"/dev/shm/{prefix}*",),  # noqa: S108 - the Python backend's shared memory
    )
