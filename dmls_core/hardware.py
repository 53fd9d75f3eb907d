"""The hardware of this machine: CPUs, GPUs and memory, detected without the libraries that use them."""

from __future__ import annotations

import ctypes
import math
import os
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dmls_core.errors import UserError, ValidationIssue

_MIN_CAPABILITY = (7, 0)
"""Oldest CUDA compute capability that cuML supports (Volta)."""

_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76
"""Attribute numbers of CUDA's driver API."""

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)

_LARGE_BLOCK = 1 << 19
"""Bytes from which a block gets its own mapping. Half of it costs 5 % more CPU on small data."""

_NO_LIMIT = 1 << 60
"""Version 1 of cgroups has a number of this order without a limit."""

_M_MMAP_THRESHOLD = -3
"""Parameter number in glibc's malloc.h."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as CUDA numbers it for this process, after ``CUDA_VISIBLE_DEVICES``."""

    index: int
    name: str
    memory: int
    """Total memory in bytes."""
    capability: tuple[int, int]

    @property
    def usable(self) -> bool:
        """Return whether the GPU engines support it."""
        return self.capability >= _MIN_CAPABILITY


def find_gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs that CUDA's driver offers to this process; none without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    gpus = (_describe(cuda, index) for index in range(count.value))
    return [gpu for gpu in gpus if gpu is not None]


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
    """Return the number of CPUs that this process may use: the lower of its affinity and its cgroup's quota.

    ``OMP_NUM_THREADS`` lowers it further, since Treelite rejects more threads than OpenMP may use.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if (threads := os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()).isdecimal() and int(threads):
        allowed = min(allowed, int(threads))
    quota = min(_quotas(cgroups, membership), default=math.inf)
    return max(1, min(allowed, math.ceil(quota))) if quota < math.inf else allowed


def _quotas(cgroups: Path, membership: Path) -> list[float]:
    """Return the CPU quotas of the process's cgroups and their parents, for cgroup versions 1 and 2."""
    return [quota for folder in _groups("cpu", cgroups, membership) if (quota := _quota(folder)) is not None]


def _groups(controller: str, cgroups: Path, membership: Path) -> list[Path]:
    """Return the folders of the process's cgroups with a controller, and their parents'."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    groups: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = cgroups if not controllers else cgroups / controller
        folder = top / path.lstrip("/")
        # Inside a container the path may name a folder of the host; then only the top folder is mounted.
        groups += [folder, *folder.parents]
    return groups


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


def available_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or a lower limit."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(machine, memory_limit() or machine)


def memory_limit(
    cgroups: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Return the bytes of memory that this process may use: the lower of its cgroups' limits and its own."""
    soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
    limits = [] if soft == resource.RLIM_INFINITY else [soft]
    for folder in _groups("memory", cgroups, membership):
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            limits += [int(text)] if text.isdecimal() else []
    lowest = min(limits, default=_NO_LIMIT)
    return lowest if lowest < _NO_LIMIT else None


def peak_memory() -> int:
    """Return the largest resident size of this process so far in bytes; 0 if unknown.

    ``getrusage`` would also count the parent's memory when it started this process.
    """
    return _status_bytes("VmHWM")


def mapped_memory() -> int:
    """Return the resident bytes of the files that this process maps, such as its libraries; 0 if unknown."""
    return _status_bytes("RssFile") + _status_bytes("RssShmem")  # files on a disk, and in a tmpfs


def _status_bytes(name: str) -> int:
    try:
        with Path("/proc/self/status").open(encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))
    except (OSError, StopIteration):
        return 0


def parse_memory(text: str) -> int:
    """Return the number of bytes of ``text``: ``"4g"`` and ``"4 GiB"`` are 4 x 2**30.

    Raises:
        UserError: ``text`` is not an amount of memory.
    """
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise UserError(
            ValidationIssue(
                "not an amount of memory", key="memory", found=text, hint='write it like "4g" or "512m"'
            )
        )
    return int(float(match[1]) * _UNITS[match[2].lower()])


def return_large_blocks() -> None:
    """Make this process return large blocks to the system as soon as they are freed.

    By default glibc raises the threshold to the size of the largest freed block (up to 32 MiB) and keeps
    smaller blocks, which fragments the heap: on 500,000 x 54 rows by as much as the float32 matrix again.
    Without this setting, as in other C libraries, the function does nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


def trim_heap() -> None:
    """Return free memory between used blocks to the system.

    Many small blocks (the nodes of trees) leave gaps that later large blocks do not fit into: on 100,000 x
    54 rows a search left almost as much as the float32 matrix. Other C libraries may do so by themselves.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
