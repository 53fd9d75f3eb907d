"""Checks of the machine: Python, packages, disk, Docker, GPUs, Triton's server."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

from dmls_core import extensions
from dmls_core.devstack.docker_engine import TRAINER_IMAGE, engine_version, has_trainer_image
from dmls_core.devstack.programs import find_uv
from dmls_core.devstack.triton import find_genuine, running_backend
from dmls_core.errors import PlatformError
from dmls_core.hardware import find_gpus
from dmls_core.serving.formats.treelite.fil_backend import DESCRIPTIONS

_OLDEST_PYTHON = (3, 11)

EXTRAS = {
    "airflow": "DMLS in Airflow",
    "trainer": "training on the CPU outside a container",
    "platform": "the embedded platform",
}

GIB = 2**30
LITTLE_DISK, TOO_LITTLE_DISK = 5 * GIB, 1 * GIB


_GENUINE_HINT = "set DMLS_TRITON_SERVER to a tritonserver with backends/fil/libtriton_fil.so"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check: ``missing`` is optional or not needed here, ``broken`` needs a fix."""

    name: str
    state: Literal["ok", "missing", "broken"]
    message: str
    hint: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the check as JSON."""
        return asdict(self)


def check_python() -> Check:
    """Check the version of this Python."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= _OLDEST_PYTHON:
        return Check("python", "ok", f"{version}, {sys.executable}")
    return Check("python", "broken", version, "install Python 3.11 or newer")


def check_packages(extra: str) -> Check:
    """Check that the packages of one of DMLS's extras are installed in versions that fit."""
    requirements = [Requirement(text) for text in importlib.metadata.requires("dmls") or ()]
    lacking, versions = [], {}
    for requirement in requirements:
        if not (requirement.marker and requirement.marker.evaluate({"extra": extra})):
            continue
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            lacking.append(str(requirement).partition(";")[0].strip())
            continue
        versions[requirement.name] = version
        if not requirement.specifier.contains(version, prereleases=True):
            lacking.append(f"{requirement.name}{requirement.specifier} (found {version})")
    name = f"packages: {extra}"
    if lacking:
        hint = f"for {EXTRAS[extra]}: pip install 'dmls[{extra}]'"
        return Check(name, "missing", "not installed: " + ", ".join(lacking), hint)
    return Check(name, "ok", f"{len(versions)} packages for {EXTRAS[extra]}")


def check_notifiers() -> Check:
    """Check that the packages of the installed notifiers are there."""
    channels = extensions.names("dmls.notifiers")
    missing = []
    for channel in channels:
        package = extensions.load("dmls.notifiers", channel).package
        try:
            importlib.metadata.version(package or "dmls")
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{channel} (pip install {package})")
    if missing:
        hint = "needed only if a spec's [owner] notify names it"
        return Check("notifiers", "missing", "no package for " + ", ".join(missing), hint)
    return Check("notifiers", "ok", ", ".join(channels))


def check_uv(project: Path) -> Check:
    """Check for uv, which creates environments faster than pip."""
    uv = find_uv(project)
    if uv:
        return Check("uv", "ok", uv)
    return Check(
        "uv", "missing", "not found: pip is used", "pip install uv, or see https://docs.astral.sh/uv"
    )


def check_disk(folder: Path) -> Check:
    """Check the free space on the disk of the state folder, which may not exist yet."""
    existing = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    message = f"{free / GIB:.1f} GiB free at {existing}"
    if free < TOO_LITTLE_DISK:
        return Check("disk", "broken", message, "free at least 1 GiB, or set DMLS_HOME to another disk")
    if free < LITTLE_DISK:
        return Check("disk", "missing", message, "5 GiB leave room for models and logs")
    return Check("disk", "ok", message)


def check_docker() -> Check:
    """Check for a Docker engine with the trainer's image."""
    version = engine_version()
    if version is None:
        return Check(
            "docker",
            "missing",
            "no engine answers: `dmls up` chooses the process runner",
            "start a Docker engine, or set DOCKER_HOST to one",
        )
    if not has_trainer_image():
        return Check(
            "docker",
            "missing",
            f"engine {version}, without the image {TRAINER_IMAGE}: `dmls up` chooses the process runner",
            "`dmls up` in the source tree builds it; or make images",
        )
    return Check("docker", "ok", f"engine {version}, image {TRAINER_IMAGE}")


def check_gpus() -> Check:
    """Check for NVIDIA GPUs."""
    gpus = find_gpus()
    if not gpus:
        return Check("gpu", "missing", "none: models are trained by the cpu engine")
    names = ", ".join(f"{gpu.name} ({gpu.memory / GIB:.0f} GiB)" for gpu in gpus)
    if not any(gpu.usable for gpu in gpus):
        return Check("gpu", "missing", f"{names}: too old for cuML, the cpu engine is used")
    return Check("gpu", "ok", names)


def check_nvforest() -> Check:
    """Check what predicts in MLflow's models and drift checks on the CPU."""
    try:
        version = import_module("nvforest").__version__
    except (ImportError, OSError):
        return Check(
            "nvforest",
            "missing",
            "not installed: models from MLflow and drift checks predict with Treelite",
            "pip install --no-deps --require-hashes -r requirements/nvforest.txt: several times as fast",
        )
    return Check("nvforest", "ok", f"models from MLflow and drift checks predict with nvForest {version}")


def check_fil(pid: int | None) -> Check:
    """Check which FIL backend the embedded platform's Triton has, or would have if it does not run.

    ``pid`` is the process of the running Triton: this one may have other variables than ``dmls up`` had.
    """
    if pid is not None:
        kind = running_backend(pid)
        if kind == "genuine":
            return Check("fil backend", "ok", f"the running Triton has the {DESCRIPTIONS[kind]}")
        hint = f"{_GENUINE_HINT}; then `dmls down` and `dmls up`"
        return Check("fil backend", "missing", f"the running Triton has a {DESCRIPTIONS[kind]}", hint)
    try:
        genuine = find_genuine()
    except PlatformError as error:
        return Check("fil backend", "broken", str(error), "correct or unset the variable")
    if genuine:
        return Check("fil backend", "ok", genuine.description)
    return Check(
        "fil backend",
        "missing",
        "no genuine one: the embedded platform serves models by a stand-in (Treelite on the CPU)",
        _GENUINE_HINT,
    )
