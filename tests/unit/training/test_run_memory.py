"""What a run says about a full memory; the GPU's messages are those of libraries on a full GPU."""

from __future__ import annotations

import pytest

from dmls_core.training.run import describe_full_memory

FULL_GPU = [
    "std::bad_alloc: out_of_memory: CUDA error (failed to allocate 34054128 bytes) at: resource.cpp:26",
    "[17:32:35] device_vector.cu:53: cudaErrorMemoryAllocation\n- Free memory: 149.125MB\n\nStack trace:",
    "the GPU has too little memory for 2060 MiB of data",
]


@pytest.mark.parametrize("message", FULL_GPU)
def test_a_full_gpu_is_named_with_what_helps(message: str):
    found = describe_full_memory(MemoryError(message))

    assert found.startswith("the GPU ran out of memory (")
    assert message.splitlines()[0] in found
    assert found.endswith('set engine = "cpu"')
    assert "\n" not in found


@pytest.mark.parametrize(("message", "reason"), [("", ""), ("std::bad_alloc", " (std::bad_alloc)")])
def test_full_memory_of_the_machine_is_named_with_what_helps(message: str, reason: str):
    found = describe_full_memory(MemoryError(message))

    assert found == f"the trainer ran out of memory{reason}: raise [resources] memory"
