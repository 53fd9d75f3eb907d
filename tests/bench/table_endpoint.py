"""What the table endpoint costs over the forest itself: milliseconds a request, one client, a real Triton.

Run it with ``python tests/bench/table_endpoint.py``. Requests to the forest, and to the table endpoint with
an input for each column and with matrices, are made in turns, so that whatever else the machine does meets
all. The last two columns are differences of the medians. "idle" is a Python model with the inputs of
"columns" that does nothing, so its time is Triton's own.

A second table: frames of 54 columns by ``connect``, with and without shared memory, in turns as well.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.data.encoder import Encoder
from dmls_core.serving import Deployment, connect
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.triton.model_config import CONFIG_FILE, matrices, table_name
from tests.bench.report import Row, run
from tests.services.triton_server import new_triton

COLOURS = ("blue", "green", "red")
SHAPES = ((4, 0), (3, 2), (54, 0), (40, 14))
"""Numbers and categories of the models."""

FRAMES = {(54, 0): "54 numbers", (40, 14): "40 numbers, 14 categories"}
"""Models that are asked with frames."""


IDLE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(len(request.inputs()[0].as_numpy())) for request in requests]

    def answer(self, rows):
        outputs = {
            "label": np.full((rows, 1), b"a", object),
            "probabilities": np.zeros((rows, 3), np.float32),
            "version": np.ones((rows, 1), np.int64),
        }
        return pb_utils.InferenceResponse([pb_utils.Tensor(*output) for output in outputs.items()])
"""


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Serve a forest of 100 trees for each shape of table, and ask it."""
    rows: list[Row] = []
    frames: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        triton = new_triton(Path(scratch))
        triton.start()
        try:
            for numbers, categories in SHAPES:
                name = f"bench.table{numbers}-{categories}"
                folder = Path(scratch) / name
                _train(folder, numbers, categories)
                with triton.client() as client:
                    Deployment(triton.repository, client, name).deploy(folder)
                    _add_idle(Path(triton.context.model_repository), name)
                    client.load(f"{name}.idle")
                    for protocol in ("http", "grpc"):
                        for batch in (1, 32, 1024):
                            times = _times(
                                client.addresses, protocol, name, folder, batch, arguments.requests
                            )
                            rows.append(_row(numbers, categories, protocol, batch, times))
                    if about := FRAMES.get((numbers, categories)):
                        asked = _frames(client.addresses["grpc"], name, folder, arguments.requests)
                        frames += [{"columns": about, **row} for row in asked]
        finally:
            triton.stop()
    return {"requests": rows, "frames": frames}


def _row(numbers: int, categories: int, protocol: str, batch: int, times: dict[str, list[float]]) -> Row:
    middle = {how: statistics.median(taken) for how, taken in times.items()}
    return {
        "numbers": numbers,
        "categories": categories,
        "protocol": protocol,
        "rows": batch,
        **{f"{how} p50 ms": value for how, value in middle.items()},
        **{f"{how} p99 ms": float(np.percentile(taken, 99)) for how, taken in times.items()},
        **{f"{how} cost ms": middle[how] - middle["forest"] for how in ("columns", "matrices")},
    }


def _add_idle(repository: Path, name: str) -> None:
    """Write a model with the inputs and outputs of the table endpoint that computes nothing."""
    folder = repository / f"{name}.idle" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(IDLE)
    config = (repository / table_name(name) / CONFIG_FILE).read_text()
    (folder.parent / CONFIG_FILE).write_text(config.replace(table_name(name), folder.parent.name))


def _train(folder: Path, numbers: int, categories: int) -> None:
    """Write a model folder of random rows."""
    from sklearn.ensemble import RandomForestClassifier
    from treelite.sklearn import import_model

    features: list[dict[str, Any]] = [
        {"name": f"number{i}", "kind": "number", "fill": 0.0} for i in range(numbers)
    ]
    for i in range(categories):
        codes = {"categories": list(COLOURS), "missing": -1.0, "unknown": -1.0}
        features.append({"name": f"category{i}", "kind": "category", **codes})
    target = {"name": "y", "kind": "label", "labels": ["a", "b", "c"]}
    encoder = Encoder.from_json({"schema": 1, "features": features, "target": target})
    columns = _columns(encoder, 2000)
    x = encoder.transform(columns)
    y = np.random.default_rng(1).integers(0, 3, len(x))
    folder.mkdir()
    forest = RandomForestClassifier(100, max_depth=8, random_state=0, n_jobs=1).fit(x, y)
    model = checkpoint.export(import_model(forest), folder / "checkpoint.tl")
    expected = checkpoint.predict(model, x[:10])
    golden = {"columns": {k: v[:10] for k, v in columns.items()}, "encoded": x[:10].tolist()}
    about = {"task": "classification", "n_features": x.shape[1], "n_outputs": 3, "labels": ["a", "b", "c"]}
    contents = {
        "encoder.json": encoder.as_json(),
        "golden.json": {**golden, "expected": expected.tolist(), "labels": ["a", "b", "c"]},
        "model.json": {"schema": 1, "features": list(columns), "metric": "accuracy", "score": 0.0, **about},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))


def _frames(address: str, name: str, folder: Path, requests: int) -> list[Row]:
    """Ask with frames, in messages and by shared memory in turns."""
    encoder = Encoder.from_json(json.loads((folder / "encoder.json").read_text()))
    rows: list[Row] = []
    with connect(name, grpc=address) as plain, connect(name, grpc=address, shared_memory=True) as shared:
        for n_rows, share in ((1, 1), (1024, 4), (65_536, 50)):
            frame = {k: np.array(v) for k, v in _columns(encoder, n_rows).items()}
            asked = {"messages": plain, "shared memory": shared}
            wall: dict[str, list[float]] = {how: [] for how in asked}
            used: dict[str, list[float]] = {how: [] for how in asked}
            for number in range(max(5, requests // share) + 1):
                for how, model in asked.items():
                    start, cpu = time.perf_counter(), time.process_time()
                    model.predict(frame)
                    if number:
                        wall[how].append(1000 * (time.perf_counter() - start))
                        used[how].append(1000 * (time.process_time() - cpu))
            rows += [
                {
                    "rows": n_rows,
                    "rows go in": how,
                    "p50 ms": statistics.median(wall[how]),
                    "p99 ms": float(np.percentile(wall[how], 99)),
                    "client's CPU ms": statistics.fmean(used[how]),
                }
                for how in asked
            ]
    return rows


def _columns(encoder: Encoder, n_rows: int) -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    return {
        name: rng.choice(COLOURS, n_rows).tolist()
        if name.startswith("category")
        else rng.normal(size=n_rows).tolist()
        for name in encoder.feature_names
    }


def _times(
    addresses: dict[Any, str], protocol: str, name: str, folder: Path, batch: int, requests: int
) -> dict[str, list[float]]:
    """Return milliseconds of each request to the forest, and of both kinds to the table endpoint."""
    from importlib import import_module

    module = import_module(f"tritonclient.{protocol}")
    encoder = Encoder.from_json(json.loads((folder / "encoder.json").read_text()))
    columns = _columns(encoder, batch)

    def tensor(name: str, values: Any) -> Any:
        kinds = {"f4": "FP32", "f8": "FP64"}
        made = module.InferInput(name, list(values.shape), kinds.get(values.dtype.str[1:], "BYTES"))
        made.set_data_from_numpy(values)
        return made

    single = {
        name: np.array(values, dtype=object if name.startswith("category") else float).reshape(-1, 1)
        for name, values in columns.items()
    }
    joined = {
        name: np.hstack([single[column] for column in names]) for name, names in matrices(encoder).items()
    }
    asked = {
        "forest": (name, [tensor("input__0", encoder.transform(columns))]),
        "columns": (table_name(name), [tensor(*item) for item in single.items()]),
        "idle": (f"{name}.idle", [tensor(*item) for item in single.items()]),
        "matrices": (table_name(name), [tensor(*item) for item in joined.items()]),
    }
    times: dict[str, list[float]] = {how: [] for how in asked}
    with module.InferenceServerClient(addresses[protocol]) as client:  # type: ignore[index]
        for number in range(requests + 20):
            for how, (model, inputs) in asked.items():
                start = time.perf_counter()
                client.infer(model, inputs)
                if number >= 20:
                    times[how].append(1000 * (time.perf_counter() - start))
    return times


if __name__ == "__main__":
    run(__doc__, measure, ("--requests", 300, "requests of each kind"))
