"""Where trainers start on GPUs: what ``nvidia-smi`` reports about each, and which of them are free.

A GPU is free if no trainer leases it, other programs use less than half of it, and it has enough free memory.
Runners keep the leases; here is what all of them decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dmls_core.data.formats.names import is_plain_text
from dmls_core.errors import RunnerError
from dmls_core.store import DataObject

SAMPLES = 4
"""Reports of ``nvidia-smi`` in a probe; each is about its last fraction of a second."""

PROBE = (
    f"for sample in {' '.join(map(str, range(SAMPLES)))}; do "
    "nvidia-smi --query-gpu=index,uuid,utilization.gpu,memory.used,memory.total "
    "--format=csv,noheader,nounits || exit; sleep 0.3; done"
)
"""Shell program that reports the use of all GPUs over about a second."""

_BUSY_PERCENT = 50.0
"""Utilization from which a GPU counts as used by other programs."""

_MOST = 0.9
"""Share of a GPU's memory that an estimate may ask for; one above it waits for an empty GPU."""

CONTEXT = 512 << 20
"""Memory of CUDA's context and libraries."""

TEXT_FACTOR, PACKED_FACTOR = 2, 4
"""Largest size of the float32 matrix in sizes of its text, and the usual one of a packed or binary file."""

_MATRICES = 3
"""Copies of the matrix on the GPU during a fit."""


class GpusBusyError(RunnerError):
    """No GPU is free: the trainer waits."""


@dataclass(frozen=True, slots=True)
class ProbedGpu:
    """A GPU as ``nvidia-smi`` reports it: mean utilization in percent, memory in bytes."""

    index: int
    uuid: str
    utilization: float
    used: int
    total: int


@dataclass(frozen=True, slots=True)
class GpuSurvey:
    """The GPUs that a runner offers.

    Attributes:
        gpus: as probed.
        leases: shares that trainers lease, by the GPU's index.
        shares: number of equal shares of a GPU's memory. A trainer leases one, or all if it needs more.
    """

    gpus: Sequence[ProbedGpu] = ()
    leases: Mapping[int, int] = field(default_factory=dict)
    shares: int = 1

    def free(self, memory: int) -> list[ProbedGpu]:
        """Return the GPUs on which a trainer that needs ``memory`` bytes may start, the best first.

        On a GPU that trainers use already, their utilization does not count, but their shares do.
        """
        free = [gpu for gpu in self.gpus if self._is_free(gpu, memory)]
        return sorted(free, key=lambda gpu: (self._leased(gpu), gpu.used - gpu.total, gpu.index))

    def reason(self, memory: int) -> str:
        """Return why a trainer waits, such as ``waits for a GPU: 2 of 2 in use``."""
        leased = sum(self._leased(gpu) > 0 for gpu in self.gpus)
        in_use = len(self.gpus) - len(self.free(memory))
        text = f"waits for a GPU: {in_use} of {len(self.gpus)} in use"
        return text if in_use <= leased else f"{text}, {in_use - leased} by other programs"

    def shares_of(self, gpu: ProbedGpu, memory: int) -> int:
        """Return how many shares of a GPU a trainer leases: one, or all."""
        return 1 if memory <= gpu.total // self.shares else self.shares

    def _leased(self, gpu: ProbedGpu) -> int:
        return self.leases.get(gpu.index, 0)

    def _is_free(self, gpu: ProbedGpu, memory: int) -> bool:
        leased = self._leased(gpu)
        if leased + self.shares_of(gpu, memory) > self.shares:
            return False
        if not leased and gpu.utilization >= _BUSY_PERCENT:
            return False
        reserved = max(gpu.used, leased * gpu.total // self.shares)
        return gpu.total - reserved >= min(memory, int(_MOST * gpu.total))


def parse_probe(output: str, limit: int = 0) -> list[ProbedGpu]:
    """Return the GPUs of a probe's output, by index; only the first ``limit`` if it is not 0.

    A value that the driver does not know (``[N/A]``) counts as a GPU in use.

    Raises:
        RunnerError: the output names no GPU.
    """
    samples: dict[int, list[tuple[str, float, float, float]]] = {}
    for line in output.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 5 and parts[0].isdecimal():
            percent, used, total = (_number(part) for part in parts[2:])
            samples.setdefault(int(parts[0]), []).append((parts[1], percent, used, total))
    if not samples:
        raise RunnerError(f"nvidia-smi reports no GPU: {output.strip()[-300:] or 'no output'}")
    gpus = [_mean(index, rows) for index, rows in sorted(samples.items())]
    return gpus[:limit] if limit else gpus


def _mean(index: int, rows: Sequence[tuple[str, float, float, float]]) -> ProbedGpu:
    uuid, _, _, total = rows[-1]
    utilization = sum(row[1] for row in rows) / len(rows)
    total = total if math.isfinite(total) else 0.0
    used = min(max(row[2] for row in rows), total)
    return ProbedGpu(index, uuid, utilization, int(used) << 20, int(total) << 20)


def _number(text: str) -> float:
    return float(text) if text.replace(".", "", 1).isdecimal() else math.inf


def estimate_gpu_memory(data: Iterable[DataObject]) -> int:
    """Return the bytes of GPU memory that a run needs at most, from the sizes of its files."""
    matrix = sum(item.size * (TEXT_FACTOR if is_plain_text(item.key) else PACKED_FACTOR) for item in data)
    return CONTEXT + _MATRICES * matrix
