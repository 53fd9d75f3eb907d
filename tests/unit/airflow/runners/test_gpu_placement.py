"""Which GPUs are free."""

from __future__ import annotations

import pytest

from dmls_core.airflow.runners.gpu_placement import (
    CONTEXT,
    SAMPLES,
    GpuSurvey,
    ProbedGpu,
    estimate_gpu_memory,
    parse_probe,
)
from dmls_core.errors import RunnerError
from dmls_core.store import DataObject
from tests.support.gpus import gpu_lines

GIB = 1 << 30


def gpu(index: int = 0, percent: float = 0, used: int = 0, total: int = 16) -> ProbedGpu:
    return ProbedGpu(index, f"GPU-{index}", percent, used * GIB, total * GIB)


def test_the_utilization_is_the_mean_of_the_samples_and_the_memory_the_largest():
    output = gpu_lines((90, 100, 16384), (0, 0, 16384)) + gpu_lines((10, 300, 16384), (0, 0, 16384))
    found = parse_probe(output)
    assert (found[0].utilization, found[0].used, found[0].uuid) == (50.0, 300 << 20, "GPU-000")
    assert len(parse_probe(output, 1)) == 1
    assert SAMPLES > 1


def test_a_gpu_of_unknown_use_is_in_use():
    (found,) = parse_probe("0, GPU-a, [N/A], [N/A], 16384\n")
    assert GpuSurvey([found]).free(GIB) == []


@pytest.mark.parametrize("output", ["", "No devices were found\n"])
def test_a_probe_without_gpus_is_an_error(output: str):
    with pytest.raises(RunnerError, match="nvidia-smi reports no GPU"):
        parse_probe(output)


@pytest.mark.parametrize(
    ("probed", "memory", "free"),
    [
        (gpu(percent=49), 4, True),
        (gpu(percent=50), 4, False),
        (gpu(used=13), 4, False),
        (gpu(used=12), 4, True),
        (gpu(), 64, True),  # an estimate above the GPU's memory waits for an empty one, not for ever
        (gpu(used=2), 64, False),
    ],
)
def test_a_gpu_is_free_below_half_its_use_with_enough_memory(probed: ProbedGpu, memory: int, free: bool):
    survey = GpuSurvey([probed])
    assert bool(survey.free(memory * GIB)) == free
    assert survey.reason(memory * GIB) == (
        "waits for a GPU: 0 of 1 in use" if free else "waits for a GPU: 1 of 1 in use, 1 by other programs"
    )


def test_the_gpu_with_most_free_memory_is_taken_first():
    survey = GpuSurvey([gpu(0, used=3), gpu(1, used=1), gpu(2, percent=90), gpu(3)], {3: 1})
    assert [found.index for found in survey.free(GIB)] == [1, 0]
    assert GpuSurvey([gpu(0), gpu(1)], {0: 1, 1: 1}).reason(GIB) == "waits for a GPU: 2 of 2 in use"


def test_trainers_share_a_gpu_within_their_shares_of_its_memory():
    survey = GpuSurvey([gpu(0, percent=100, used=3), gpu(1)], {0: 2}, shares=4)
    assert [found.index for found in survey.free(4 * GIB)] == [1, 0]  # trainers' own use does not count
    assert [found.index for found in survey.free(5 * GIB)] == [1]  # more than a share: a GPU of its own
    assert GpuSurvey([gpu(used=13)], {0: 2}, shares=4).free(4 * GIB) == []
    assert GpuSurvey([gpu()], {0: 4}, shares=4).free(GIB) == []


@pytest.mark.parametrize(
    ("file", "factor"), [("csv", 2), ("tsv", 2), ("csv.gz", 4), ("parquet", 4), ("feather", 4)]
)
@pytest.mark.usefixtures("feather")
def test_the_estimate_follows_the_formats_of_the_files(file: str, factor: int):
    files = [DataObject(f"a/data.{file}", "e", 1000)] * 2
    assert estimate_gpu_memory(files) == CONTEXT + 3 * 2000 * factor
