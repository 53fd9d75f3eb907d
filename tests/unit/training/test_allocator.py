"""What the trainer frees goes back to the system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FREED = """
import numpy as np
from pathlib import Path
from dmls_core.compute.allocator import return_large_blocks
from resource import getpagesize
MIB = 2**20
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()
return_large_blocks()
large = np.ones(24 * MIB, np.int8)
del large  # left to itself, glibc now keeps blocks up to this size
first, second = np.ones(16 * MIB, np.int8), np.ones(16 * MIB, np.int8)
before = resident()
del first
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that keeps what was freed")
def test_a_freed_block_is_not_kept_below_another():
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)

    assert int(done.stdout) > 12 * 2**20
