"""What serving costs, and whether it holds while versions change; starts and ends its own servers.

Three tables: requests while versions are deployed, fail and are rolled back; requests a second and latencies
beside ``mlflow models serve`` and a FastAPI app with scikit-learn's forest; the table endpoint and the raw.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.data.encoder import Encoder
from dmls_core.errors import ServingError
from dmls_core.serving import Deployment, Repository, TritonClient, checkpoint
from tests.bench.load import Asked, Plan, ask_all, http_json, triton_raw, triton_table
from tests.bench.other_servers import fastapi_app, mlflow_server
from tests.bench.report import Row, print_table
from tests.services.triton_server import TritonProcess, new_triton
from tests.support.trained_run import trained_run, user_rows

NAME = "bench.parts"
FAILING = ("truncated", "wrong answers", "wrong shape", "no encoder", "too slow")


def measure(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Run the three parts, print each one's table, and return their rows."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parts: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        base = Path(scratch)
        triton = new_triton(base)
        triton.start()
        try:
            for name, part in {
                "while versions change": lambda: [while_versions_change(triton, base, arguments.deployments)],
                "side by side": lambda: side_by_side(triton, base, arguments.seconds, arguments.trees),
                "table over raw": lambda: table_over_raw(triton, base, arguments.seconds),
            }.items():
                parts[name] = part()
                print(name)
                print_table(parts[name])
                print()
        finally:
            triton.stop()
    return parts


def while_versions_change(triton: TritonProcess, base: Path, deployments: int) -> Row:
    """Ask with 8 clients while versions are deployed, fail and are rolled back."""
    folders = [base / f"run{seed}" for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        trained_run(folder, seed=seed)
    watched = Watched(triton, [folder / "model" for folder in folders])
    with triton.client() as client:
        changes = Changes(triton.repository, client, base, [folder / "model" for folder in folders])
        changes.deploy(0)
        with watched:
            began = time.monotonic()
            for number in range(1, deployments + 1):
                changes.deploy(number)
                if number % 4 == 0:
                    changes.fail(number)
                    changes.roll_back()
            seconds = time.monotonic() - began
    return {
        "deployments": deployments,
        "failed ones": changes.refused,
        "rollbacks": changes.rollbacks,
        "seconds": seconds,
        "HTTP answers": watched.answers["http"],
        "gRPC answers": watched.answers["grpc"],
        "failed requests": len(watched.failures),
        "wrong answers": sum(not changes.was_live(*span) for span in watched.spans),
    }


class Watched:
    """Eight clients that note which model answered each of their requests, and when."""

    def __init__(self, triton: TritonProcess, models: list[Path]) -> None:
        golden = json.loads((models[0] / "golden.json").read_text())
        self._rows = np.asarray(golden["encoded"], np.float32)[:8]
        loaded = [checkpoint.load(folder / "checkpoint.tl") for folder in models]
        self._known = [checkpoint.predict(model, self._rows) for model in loaded]
        self._triton, self._stop = triton, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=[p]) for p in ("http", "grpc") * 4]
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self.spans: list[tuple[float, float, int]] = []

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, protocol: str) -> None:
        with self._triton.client(timeout=20.0) as client:
            while not self._stop.is_set():
                begun = time.monotonic()
                try:
                    got = client.infer(NAME, self._rows, protocol=protocol)
                except ServingError as error:
                    self.failures.append(str(error))
                    continue
                kinds = [i for i, known in enumerate(self._known) if np.abs(got - known).max() <= 1e-6]
                self.spans.append((begun, time.monotonic(), kinds[0] if kinds else -1))
                self.answers[protocol] += 1


class Changes:
    """Versions made of two forests in turn, and which forest was live when."""

    def __init__(self, repository: Repository, client: TritonClient, base: Path, models: list[Path]) -> None:
        self._repository, self._client, self._base, self._models = repository, client, base, models
        self._forest: dict[int, int] = {}
        self._history: list[tuple[float, float, int]] = []
        self.refused = self.rollbacks = 0

    def deploy(self, number: int) -> None:
        """Deploy the forest that is not live, as a version of its own."""
        kind = number % 2
        folder = _variant(self._models[kind], self._base / f"v{number}", number)
        begun = time.monotonic()
        version = Deployment(self._repository, self._client, NAME).deploy(folder).version
        self._forest[version] = kind
        self._history.append((begun, time.monotonic(), kind))

    def fail(self, number: int) -> None:
        """Try to deploy what must be refused."""
        arguments = _failing(self.refused, self._models[1 - number % 2], self._base)
        try:
            Deployment(self._repository, self._client, NAME).deploy(**arguments)
        except ServingError:
            self.refused += 1

    def roll_back(self) -> None:
        """Go back to the version before."""
        begun = time.monotonic()
        version = Deployment(self._repository, self._client, NAME).rollback().version
        self._history.append((begun, time.monotonic(), self._forest[version]))
        self.rollbacks += 1

    def was_live(self, begun: float, ended: float, kind: int) -> bool:
        """Say whether a forest was live, or went live, at some moment of a request."""
        before = [k for start, done, k in self._history if done <= begun][-1:]
        return kind in before or any(
            k == kind and start <= ended and done >= begun for start, done, k in self._history
        )


def side_by_side(triton: TritonProcess, base: Path, seconds: float, trees: int) -> list[Row]:
    """Ask our deployment, MLflow's own server and a FastAPI app, each by 1 and 8 clients."""
    run_folder = base / "other servers"
    trained_run(run_folder, seed=3, n_trees=trees)
    columns = user_rows(1024, seed=8)
    encoder = Encoder.from_json(json.loads((run_folder / "model/encoder.json").read_text()))
    encoded = encoder.transform(columns)
    with triton.client() as client:
        Deployment(triton.repository, client, "bench.server").deploy(run_folder / "model")
    http, grpc = (triton.context.address(f"triton_{kind}") for kind in ("http", "grpc"))
    rows: list[Row] = []
    with mlflow_server(run_folder, base) as mlflow, fastapi_app(run_folder, base, trees) as fastapi:
        for batch in (1, 32, 1024):
            part = encoded[:batch]
            frame = {name: values[:batch] for name, values in columns.items()}
            records = [list(row) for row in zip(*frame.values(), strict=True)]
            plans: dict[str, Plan] = {
                "Triton, gRPC": triton_raw("grpc", grpc, "bench.server", part),
                "Triton, HTTP": triton_raw("http", http, "bench.server", part),
                "mlflow models serve": http_json(
                    mlflow, "/invocations", {"dataframe_split": {"columns": list(frame), "data": records}}
                ),
                "FastAPI, scikit-learn": http_json(fastapi, "/predict", {"rows": part.tolist()}),
            }
            for clients in (1, 8):
                for server, plan in plans.items():
                    about = {"server": server, "rows": batch, "clients": clients}
                    rows.append(about | _figures(ask_all(plan, clients, seconds)))
    return rows


def table_over_raw(triton: TritonProcess, base: Path, seconds: float) -> list[Row]:
    """Ask the raw and the table endpoint of the same model."""
    grpc = triton.context.address("triton_grpc")
    encoder = Encoder.from_json(json.loads((base / "other servers/model/encoder.json").read_text()))
    rows: list[Row] = []
    for batch in (1, 32, 1024):
        columns = user_rows(batch, seed=8)
        plans = {
            "raw": triton_raw("grpc", grpc, "bench.server", encoder.transform(columns)),
            "table": triton_table(grpc, "bench.server", encoder, columns),
        }
        rows += [
            {"endpoint": kind, "rows": batch, "clients": 1, **_figures(ask_all(plan, 1, seconds))}
            for kind, plan in plans.items()
        ]
    return rows


def _figures(asked: Asked) -> Row:
    times = np.asarray(asked.milliseconds) if asked.milliseconds else np.array([float("nan")])
    return {
        "requests/s": len(asked.milliseconds) / asked.seconds,
        "p50 ms": float(np.percentile(times, 50)),
        "p99 ms": float(np.percentile(times, 99)),
        "failed": asked.failed,
    }


def _variant(source: Path, target: Path, number: int) -> Path:
    """Copy a model's folder so that it counts as another model."""
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    about = json.loads((target / "model.json").read_text())
    (target / "model.json").write_text(json.dumps(about | {"score": number}))
    return target


def _failing(number: int, source: Path, base: Path) -> dict[str, Any]:
    """Return the arguments of a deployment that must fail, for another reason each time."""
    kind = FAILING[number % len(FAILING)]
    folder = _variant(source, base / f"bad{number}", 1000 + number)
    if kind == "truncated":
        (folder / "checkpoint.tl").write_bytes((folder / "checkpoint.tl").read_bytes()[:500])
    elif kind == "wrong answers":
        golden = json.loads((folder / "golden.json").read_text())
        golden["expected"] = [row[::-1] for row in golden["expected"]]
        (folder / "golden.json").write_text(json.dumps(golden))
    elif kind == "wrong shape":
        about = json.loads((folder / "model.json").read_text())
        (folder / "model.json").write_text(json.dumps(about | {"n_features": 2}))
    elif kind == "no encoder":
        (folder / "encoder.json").unlink()
    return {"folder": folder, "max_latency_ms": 1e-6 if kind == "too slow" else None}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--deployments", type=int, default=20, help="under load; one that fails and a rollback to every four"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of load for each figure")
    parser.add_argument("--trees", type=int, default=100, help="trees of the forest that is compared")
    options = parser.parse_args()
    figures = measure(options)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
