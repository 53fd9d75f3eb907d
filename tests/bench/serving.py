"""What serving costs: DMLS's Triton compared with other servers, by one client program in one run.

The model is a forest of 100 trees on scikit-learn's digits (64 features, 10 classes). lleaves serves 100
trees of LightGBM, and so does Triton in a row of its own. DMLS's Triton has the stand-in for the FIL backend
(Treelite in Triton's Python backend), not NVIDIA's. Every server has one process and one thread for a
prediction; uv installs it for the time of the run. perf_analyzer loads Triton too, as a check of the client.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.serving import Deployment
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.formats.treelite.onnx_export import write_onnx
from tests.bench.load import ask_all, cpu_seconds, triton_grpc, triton_http
from tests.bench.other_servers import ENVIRONMENTS, Server, install, start_others
from tests.bench.report import Row, print_table
from tests.services.debian import find_program
from tests.services.triton_server import TritonProcess, new_triton

BATCHES, CLIENTS = (1, 16, 128, 1024), (1, 8, 32, 64)
QUICK_BATCHES, QUICK_CLIENTS = (1, 128), (1, 8)
MODELS = {False: "bench.forest", True: "bench.boosted"}
WINDOW_MS = 700
"""perf_analyzer measures three of these."""

ANALYZER_SECONDS = 40


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Start every server, load each in turn for every batch and number of clients, and print the figures."""
    os.environ["OMP_NUM_THREADS"] = "1"
    batches, clients = (QUICK_BATCHES, QUICK_CLIENTS) if arguments.quick else (BATCHES, CLIENTS)
    cells: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch, ExitStack() as stack:
        base = Path(scratch)
        rows, expected = write_models(base)
        triton = new_triton(base)
        triton.start()
        stack.callback(triton.stop)
        servers = [*deploy(triton, base), *start_others(base, stack)]
        analyzer = PerfAnalyzer(base, rows, triton)
        about = {
            "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "servers": f"Triton 2.51 with the stand-in for FIL, mlflow=={version('mlflow')}, "
            + ", ".join(ENVIRONMENTS.values()),
            "CPUs": os.cpu_count(),
            "load before": os.getloadavg()[0],
        }
        for batch in batches:
            part = rows[:batch]
            for count in clients:
                group: list[Row] = []
                for server in servers:
                    plan = server.plan(part)
                    answer = server.read(_parsed(plan()()))
                    assert np.allclose(answer, expected[server.boosted][:batch], atol=1e-4), server.name
                    group.append(
                        {"server": server.name} | ask_all(plan, count, arguments.seconds, server.process)
                    )
                group += analyzer.measure(batch, count)
                print(f"\n{batch} rows, {count} clients", flush=True)
                print_table(group)
                cells += [{"rows": batch, "clients": count} | row for row in group]
        about["load after"] = os.getloadavg()[0]
    return {"about": about, "cells": cells}


def _parsed(answer: Any) -> Any:
    """Parse JSON; Triton's answers are left to ``Server.read``."""
    return json.loads(answer) if isinstance(answer, bytes) and answer[-1:] in b"]}" else answer


def write_models(base: Path) -> tuple[np.ndarray, dict[bool, np.ndarray]]:
    """Train the forest and the LightGBM model; return 1,024 rows and what each predicts for them."""
    from lightgbm import LGBMClassifier
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier
    from treelite.frontend import from_lightgbm
    from treelite.sklearn import import_model

    x, y = load_digits(return_X_y=True)
    rows = np.ascontiguousarray(x[:1024], np.float32)
    forest = RandomForestClassifier(100, random_state=0).fit(x, y)
    boosted = LGBMClassifier(n_estimators=10, verbose=-1, random_state=0).fit(x, y).booster_
    joblib.dump(forest, base / "forest.joblib")
    boosted.save_model(base / "boosted.txt")
    expected = {}
    for kind, model in {False: import_model(forest), True: from_lightgbm(boosted)}.items():
        folder = base / MODELS[kind].removeprefix("bench.")
        folder.mkdir()
        loaded = checkpoint.export(model, folder / "checkpoint.tl")
        expected[kind] = checkpoint.predict(loaded, rows)
        _describe(folder, rows[:20], expected[kind][:20])
    write_onnx(base / "forest", base / "forest.onnx", {})
    return rows, expected


def _describe(folder: Path, rows: np.ndarray, expected: np.ndarray) -> None:
    """Write the files of a model next to its checkpoint, as a trainer does."""
    names, labels = [f"p{i}" for i in range(rows.shape[1])], list(map(str, range(10)))
    features = [{"name": name, "kind": "number", "fill": 0.0} for name in names]
    target = {"name": "digit", "kind": "label", "labels": labels}
    golden = {"columns": dict(zip(names, rows.T.tolist(), strict=True)), "encoded": rows.tolist()}
    about = {"task": "classification", "n_features": len(names), "n_outputs": 10, "labels": labels}
    contents = {
        "encoder.json": {"schema": 1, "features": features, "target": target},
        "golden.json": {**golden, "expected": expected.tolist(), "labels": labels},
        "model.json": {"schema": 1, "features": names, "metric": "accuracy", "score": 0.0, **about},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))


def deploy(triton: TritonProcess, base: Path) -> list[Server]:
    """Deploy both models as DMLS does."""
    http, grpc = (triton.context.address(f"triton_{kind}") for kind in ("http", "grpc"))
    with triton.client() as client:
        for name in MODELS.values():
            Deployment(triton.repository, client, name).deploy(base / name.removeprefix("bench."))
    assert triton.process is not None
    process = triton.process.pid

    def over_http(kind: bool) -> Server:
        name = "Triton, HTTP" + ", LightGBM" * kind
        return Server(
            name, process, lambda rows: triton_http(http, MODELS[kind], rows), _tensor, boosted=kind
        )

    over_grpc = Server(
        "Triton, gRPC",
        process,
        lambda rows: triton_grpc(grpc, MODELS[False], rows),
        lambda answer: answer.as_numpy("output__0"),
    )
    return [over_http(False), over_grpc, over_http(True)]


def _tensor(answer: bytes) -> np.ndarray:
    """Return the output tensor, which follows the JSON that describes it."""
    size = json.JSONDecoder().raw_decode(answer.split(b"\x00", 1)[0].decode(errors="replace"))[0]
    output = size["outputs"][0]
    return np.frombuffer(answer[-output["parameters"]["binary_data_size"] :], "<f4").reshape(output["shape"])


class PerfAnalyzer:
    """Triton's own client, which tritonclient's wheel of the server's release has."""

    def __init__(self, base: Path, rows: np.ndarray, triton: TritonProcess) -> None:
        self._base, self._triton = base, triton
        packages = ["tritonclient==2.51.0", "nvidia-cuda-runtime-cu12==12.9.79"]
        self._program = install(base / "env-perf", packages, "--no-deps") / "perf_analyzer"
        library = "usr/lib/x86_64-linux-gnu/libb64.so.0d"
        folders = [find_program("libb64-0d", library, base / "libb64").parent]
        folders += (base / "env-perf").glob("lib/python3*/site-packages/nvidia/cuda_runtime/lib")
        self._environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folders))}
        data = [{"input__0": {"content": row, "shape": [len(row)]}} for row in rows.tolist()]
        (base / "rows.json").write_text(json.dumps({"data": data}))

    def measure(self, batch: int, clients: int) -> Iterator[Row]:
        """Load the forest over HTTP and gRPC."""
        assert self._triton.process is not None
        for protocol, name in {"http": "HTTP", "grpc": "gRPC"}.items():
            file = self._base / "perf.csv"
            command = [self._program, "-m", MODELS[False], "-i", protocol, "-b", str(batch), "-f", file]
            command += ["-u", self._triton.context.address(f"triton_{protocol}"), "-p", str(WINDOW_MS)]
            command += ["--concurrency-range", str(clients), "--input-data", self._base / "rows.json"]
            command += ["-r", "3", "-s", "999"]
            before, asked = cpu_seconds(self._triton.process.pid), self._answered()
            try:
                subprocess.run(
                    command, env=self._environment, check=True, capture_output=True, timeout=ANALYZER_SECONDS
                )
            except subprocess.SubprocessError as error:
                print(f"perf_analyzer is left out: {error}", file=sys.stderr)
                continue
            cpu = cpu_seconds(self._triton.process.pid) - before
            found = next(csv.DictReader(file.open()))
            yield {
                "server": f"Triton, {name}, perf_analyzer",
                "requests/s": float(found["Inferences/Second"]) / batch,
                "p50 ms": float(found["p50 latency"]) / 1000,
                "p99 ms": float(found["p99 latency"]) / 1000,
                "server CPU ms": 1000 * cpu / max(1, self._answered() - asked),
                "failed": 0,
            }

    def _answered(self) -> int:
        import tritonclient.http

        with tritonclient.http.InferenceServerClient(self._triton.context.address("triton_http")) as client:
            (about,) = client.get_inference_statistics(MODELS[False])["model_stats"]
        return int(about["inference_stats"]["success"]["count"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of load for each figure")
    parser.add_argument("--quick", action="store_true", help="two batches and two numbers of clients")
    options = parser.parse_args()
    begun = time.monotonic()
    result = measure(options)
    for name, value in result["about"].items():
        print(f"{name}: {value}")
    print(f"{time.monotonic() - begun:.0f} s")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
