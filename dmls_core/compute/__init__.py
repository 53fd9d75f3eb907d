"""What this machine can compute with: CPUs, GPUs, memory."""

from __future__ import annotations

from dmls_core.compute.detect import Gpu, available_cpus, find_gpus

__all__ = ["Gpu", "available_cpus", "find_gpus"]
