"""Which CPUs and GPUs this process may use, found without importing any library that uses them."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LEAST_CAPABILITY = (7, 0)
"""Oldest CUDA compute capability that cuML supports (Volta)."""

_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76
"""Numbers of the two attributes in CUDA's driver interface."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as CUDA numbers it for this process (``CUDA_VISIBLE_DEVICES`` is honoured)."""

    index: int
    name: str
    memory: int
    """Bytes in all."""
    capability: tuple[int, int]

    @property
    def usable(self) -> bool:
        """Whether the gpu engine runs on it."""
        return self.capability >= LEAST_CAPABILITY


def find_gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs that CUDA's driver offers to this process; none where there is no driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    found = (_describe(cuda, index) for index in range(count.value))
    return [gpu for gpu in found if gpu is not None]


def _describe(cuda: ctypes.CDLL, index: int) -> Gpu | None:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    memory = ctypes.c_size_t()
    name = ctypes.create_string_buffer(128)
    calls: tuple[Callable[[], int], ...] = (
        lambda: cuda.cuDeviceGet(ctypes.byref(device), index),
        lambda: cuda.cuDeviceGetName(name, len(name), device),
        lambda: cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device),
        lambda: cuda.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device),
        lambda: cuda.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device),
    )
    if any(call() != 0 for call in calls):
        return None
    return Gpu(index, name.value.decode(errors="replace"), memory.value, (major.value, minor.value))


def available_cpus(
    cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int:
    """Return how many CPUs this process may keep busy: its affinity, cut to its cgroup's quota.

    ``OMP_NUM_THREADS`` lowers it: Treelite refuses to use more threads than OpenMP may.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if (threads := os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()).isdecimal() and int(threads):
        allowed = min(allowed, int(threads))
    quota = min(_quotas(cgroups, membership), default=math.inf)
    return max(1, min(allowed, math.ceil(quota))) if quota < math.inf else allowed


def _quotas(cgroups: Path, membership: Path) -> list[float]:
    """Return the CPU quotas of the process's cgroups and of all above them, versions 1 and 2."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = cgroups if not controllers else cgroups / "cpu"
        folder = top / path.lstrip("/")
        # Inside a container the path may name a folder of the host: the top is what is mounted here.
        quotas += [found for place in (folder, *folder.parents) if (found := _quota(place)) is not None]
    return quotas


def _quota(folder: Path) -> float | None:
    try:
        if (file := folder / "cpu.max").is_file():
            limit, period = file.read_text().split()
        else:
            limit = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
    except (OSError, ValueError):
        return None
    return None if limit in {"max", "-1"} else int(limit) / int(period)
