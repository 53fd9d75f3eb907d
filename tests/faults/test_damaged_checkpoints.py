"""Damaged checkpoints offered to a real Triton server."""

from __future__ import annotations

from tests.bench.damaged_checkpoints import BY_CHILD, BY_HASH, LOST, offer


def test_no_damaged_checkpoint_ends_the_server(triton, tmp_path):
    *_, total = offer(triton, tmp_path, 32)
    assert total[BY_HASH] == total["files"] == 32
    assert total[BY_CHILD] > 0
    assert total[LOST] == 0
