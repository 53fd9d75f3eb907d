"""Damaged checkpoints against a real Triton: how many are refused before it loads them, and how many end it.

Run it with ``python tests/bench/damaged_checkpoints.py``. Files are truncated, have flipped bits, swapped
sections or a zeroed range, decided by their number. Each is offered twice: as a file that changed after the
training, where the recorded hash refuses it, and as one that was written damaged, where the hash is its own
and the child process must refuse it. What passes is loaded and answers the golden rows.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.errors import ServingError
from dmls_core.sandbox import Limits, SandboxError, Worker
from dmls_core.serving import TritonClient
from dmls_core.serving.deployment.verification import GoldenRows
from dmls_core.serving.formats.model_check import check_model, inspect_model
from dmls_core.serving.formats.tolerance import rows_that_differ
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.model_config import CANDIDATE
from tests.bench.report import Row, run
from tests.services.triton_server import TritonProcess, new_triton
from tests.support.damage import KINDS, damaged
from tests.support.trained_run import record_checkpoint, trained_run

NAME = "bench.damaged"
BY_HASH, BY_CHILD, BY_SERVER, WRONG, RIGHT, LOST = (
    "refused by hash",
    "refused by child",
    "refused by server",
    "loaded, wrong",
    "loaded, right",
    "servers lost",
)


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Offer damaged checkpoints to a server; return what happened to them, by kind of damage."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        triton = new_triton(Path(scratch))
        triton.start()
        try:
            return offer(triton, Path(scratch), arguments.files, arguments.first)
        finally:
            triton.stop()


def offer(triton: TritonProcess, scratch: Path, files: int, first: int = 0) -> list[Row]:
    """Offer the files with the numbers from ``first`` on; a server that is lost is started again."""
    trained_run(scratch / "run")
    whole = scratch / "run" / "model"
    content = (whole / "checkpoint.tl").read_bytes()
    counts = {kind: Counter[str]() for kind in KINDS}
    with triton.client(timeout=20.0, load_timeout=20.0) as client, Worker(Limits(seconds=5)) as worker:
        for number in range(first, first + files):
            folder = shutil.copytree(whole, scratch / f"model{number}")
            kind, changed = damaged(content, number)
            (folder / "checkpoint.tl").write_bytes(changed)
            count = counts[kind]
            count["files"] += 1
            try:
                check_model(folder, NAME)
            except ServingError:
                count[BY_HASH] += 1
            record_checkpoint(folder)
            try:
                worker.call(inspect_model, "treelite", str(folder))
            except (ServingError, SandboxError):
                count[BY_CHILD] += 1
            else:
                count[_load(triton.repository, client, folder)] += 1
                if not client.live():
                    count[LOST] += 1
                    triton.stop()
                    triton.start()
            shutil.rmtree(folder)
    outcomes = ("files", BY_HASH, BY_CHILD, BY_SERVER, WRONG, RIGHT, LOST)
    rows = [{"damage": kind, **{outcome: counts[kind][outcome] for outcome in outcomes}} for kind in KINDS]
    total = sum(counts.values(), Counter())
    return [*rows, {"damage": "all", **{outcome: total[outcome] for outcome in outcomes}}]


def _load(repository: Repository, client: TritonClient, folder: Path) -> str:
    """Load a checkpoint as a candidate, and compare its answers with the golden rows."""
    version = repository.add(NAME, folder)
    repository.stage(NAME, version, folder)
    candidate = NAME + CANDIDATE
    try:
        client.load(candidate)
        golden = GoldenRows.read(repository, NAME, version)
        parts = golden.encoded[:1], golden.encoded[1:]
        got = np.concatenate([client.infer(candidate, rows) for rows in parts])
    except ServingError:
        return BY_SERVER
    finally:
        repository.unstage(NAME)
    return WRONG if len(rows_that_differ(golden.expected, got, classification=True)) else RIGHT


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--files", 1000, "damaged files"),
        ("--first", 0, "number of the first one"),
    )
