"""Damaged checkpoints against a real Triton: how many are refused before it loads them, and how many end it.

Run it with ``python tests/bench/damaged_checkpoints.py``. Files of every kind of model are truncated, have
flipped bits, swapped sections or a zeroed range, or one entry of a tree's field is changed; the number of the
file decides. Each is offered twice: as a file that changed after the
training, where the recorded hash refuses it, and as one that was written damaged, where the hash is its own
and the child process must refuse it. What passes is loaded and answers the golden rows.
"""

from __future__ import annotations

import argparse
import json
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
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.model_config import CANDIDATE
from tests.bench.report import Row, run
from tests.services.triton_server import TritonProcess, new_triton
from tests.support.damage import KINDS, change_field, damaged
from tests.support.trained_run import record_checkpoint, trained_run
from tests.support.tree_models import TREE_MODELS, tree_model

NAME = "bench.damaged"
CHANGED = "changed field"
BY_HASH, BY_CHILD, BY_SERVER, WRONG, RIGHT, LOST = (
    "refused by hash",
    "refused by child",
    "refused by server",
    "loaded, wrong",
    "loaded, right",
    "servers lost",
)


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Offer damaged checkpoints to a server; return what happened to them, by damage and by model."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        triton = new_triton(Path(scratch))
        triton.start()
        try:
            return offer(triton, Path(scratch), arguments.files, arguments.first)
        finally:
            triton.stop()


def offer(triton: TritonProcess, scratch: Path, files: int, first: int = 0) -> list[Row]:
    """Offer the files with the numbers from ``first`` on; a server that is lost is started again."""
    models = {name: _whole(scratch / name, name) for name in TREE_MODELS}
    kinds = (*KINDS, CHANGED)
    counts = {name: Counter[str]() for name in (*kinds, *models, "all")}
    with triton.client(timeout=20.0, load_timeout=20.0) as client, Worker(Limits(seconds=5)) as worker:
        for number in range(first, first + files):
            turn, of_kind = divmod(number, len(kinds))
            name = TREE_MODELS[turn % len(TREE_MODELS)]
            folder = shutil.copytree(models[name], scratch / f"model{number}")
            kind = _damage(folder / "checkpoint.tl", turn, of_kind)
            outcomes = ["files"]
            try:
                check_model(folder, NAME)
            except ServingError:
                outcomes.append(BY_HASH)
            record_checkpoint(folder)
            try:
                worker.call(inspect_model, "treelite", str(folder))
            except (ServingError, SandboxError):
                outcomes.append(BY_CHILD)
            else:
                outcomes.append(_load(triton.repository, client, folder, name))
                if not client.live():
                    outcomes.append(LOST)
                    triton.stop()
                    triton.start()
            for row in (kind, name, "all"):
                counts[row].update(outcomes)
            shutil.rmtree(folder)
    columns = ("files", BY_HASH, BY_CHILD, BY_SERVER, WRONG, RIGHT, LOST)
    return [
        {"damage or model": row, **{name: count[name] for name in columns}} for row, count in counts.items()
    ]


def _whole(folder: Path, name: str) -> Path:
    """Return a ``model/`` folder with a model of a kind, and what it answers as its golden rows."""
    trained_run(folder, regression=name.endswith("regressor"))
    model = folder / "model"
    golden = json.loads((model / "golden.json").read_text())
    rows = np.asarray(golden["encoded"], np.float32)
    served = checkpoint.export(tree_model(name, np.maximum(rows, 0)), model / "checkpoint.tl")
    golden["expected"] = checkpoint.predict(served, rows).reshape(len(rows), -1).tolist()
    (model / "golden.json").write_text(json.dumps(golden))
    record_checkpoint(model)
    return model


def _damage(path: Path, turn: int, of_kind: int) -> str:
    """Damage a checkpoint, and return how."""
    if of_kind == len(KINDS):
        change_field(path, turn)
        return CHANGED
    kind, changed = damaged(path.read_bytes(), len(KINDS) * turn + of_kind)
    path.write_bytes(changed)
    return kind


def _load(repository: Repository, client: TritonClient, folder: Path, name: str) -> str:
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
    classification = name.endswith("classifier")
    return WRONG if len(rows_that_differ(golden.expected, got, classification=classification)) else RIGHT


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--files", 1000, "damaged files"),
        ("--first", 0, "number of the first one"),
    )
