from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from dmls_core.errors import UserError
from dmls_core.hardware import Gpu, available_cpus, find_gpus, memory_limit, parse_memory


@pytest.mark.parametrize(
    ("text", "size"), [("4g", 4 << 30), ("4 GiB", 4 << 30), ("1.5G", 3 << 29), ("512m", 512 << 20), ("7", 7)]
)
def test_amounts_of_memory(text: str, size: int):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "4 apples", "-1g", "g"])
def test_other_text_is_not_an_amount_of_memory(text: str):
    with pytest.raises(UserError, match='write it like "4g"'):
        parse_memory(text)


def test_gpus_are_found_without_a_driver():
    assert all(isinstance(gpu, Gpu) for gpu in find_gpus())


AFFINITY = len(os.sched_getaffinity(0))


def cgroup(tmp_path: Path, membership: str, files: dict[str, str]) -> int:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "membership").write_text(membership)
    return available_cpus(tmp_path / "cgroup", tmp_path / "membership")


V1 = "cgroup/cpu/cpu.cfs_quota_us", "cgroup/cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("0::/\n", {"cgroup/cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cgroup/cpu.max": "max 100000\n"}, AFFINITY),
        ("0::/a/b\n", {"cgroup/a/cpu.max": "50000 100000\n", "cgroup/a/b/cpu.max": "max 100000"}, 1),
        ("3:cpu,cpuacct:/x\n0::/\n", {V1[0]: "-1", V1[1]: "100"}, AFFINITY),
        ("3:cpu,cpuacct:/x\n", {V1[0]: "90", V1[1]: "100"}, 1),
        ("0::/\n", {"cgroup/cpu.max": "10000000 100000\n"}, AFFINITY),
        ("0::/\n", {"cgroup/cpu.max": "broken\n"}, AFFINITY),
    ],
)
def test_cpus_follow_the_quota_of_the_cgroup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, membership: str, files: dict[str, str], cpus: int
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert cgroup(tmp_path, membership, files) == cpus


@pytest.mark.parametrize(
    ("value", "wanted"), [("1", 1), ("1,2", 1), ("999", None), ("0", None), ("many", None)]
)
def test_cpus_follow_the_limit_of_openmp(monkeypatch, value: str, wanted: int | None):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    unlimited = available_cpus()
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert available_cpus() == (wanted or unlimited)


@pytest.mark.parametrize(
    ("membership", "files", "limit"),
    [
        ("0::/\n", {"cgroup/memory.max": "max\n"}, None),
        ("0::/a/b\n", {"cgroup/a/memory.max": "500000\n", "cgroup/a/b/memory.max": "max\n"}, 500_000),
        ("4:memory:/x\n", {"cgroup/memory/x/memory.limit_in_bytes": "700000\n"}, 700_000),
        ("4:memory:/x\n", {"cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_memory_is_limited_by_the_cgroup(
    tmp_path: Path, membership: str, files: dict[str, str], limit: int | None
) -> None:
    cgroup(tmp_path, membership, files)
    assert memory_limit(tmp_path / "cgroup", tmp_path / "membership") == limit


FREED = """
import numpy as np
from pathlib import Path
from dmls_core.hardware import return_large_blocks
from resource import getpagesize
MIB = 2**20
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()
return_large_blocks()
large = np.ones(24 * MIB, np.int8)
del large  # by default, glibc now keeps blocks up to this size
first, second = np.ones(16 * MIB, np.int8), np.ones(16 * MIB, np.int8)
before = resident()
del first
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed blocks")
def test_a_freed_large_block_returns_to_the_system():
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)

    assert int(done.stdout) > 12 * 2**20
