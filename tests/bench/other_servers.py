"""Other ways to serve the same forest: MLflow's own scoring server, and a FastAPI app as teams write it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.seaweed import free_ports

START_SECONDS = 90

APP = """
import pickle
from pathlib import Path
import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel

forest = pickle.loads(Path({model!r}).read_bytes())
app = FastAPI()

class Rows(BaseModel):
    rows: list[list[float]]

@app.get("/ping")
def ping():
    return "ok"

@app.post("/predict")
def predict(body: Rows):
    return {{"probabilities": forest.predict_proba(np.asarray(body.rows, np.float32)).tolist()}}
"""


@contextmanager
def mlflow_server(run_folder: Path, base: Path) -> Iterator[str]:
    """Run ``mlflow models serve`` of the model as DMLS logs it; give its address."""
    from mlflow.models import Model

    from dmls_core.tracking.model_folder import built_model

    (port,) = free_ports(1)
    with built_model(run_folder / "model", Model(), {}) as built:
        command = [sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", str(built)]
        command += ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)]
        with _running(command, base / "mlflow.log", f"http://127.0.0.1:{port}/ping"):
            yield f"127.0.0.1:{port}"


@contextmanager
def fastapi_app(run_folder: Path, base: Path, trees: int) -> Iterator[str]:
    """Run a FastAPI app that calls ``predict_proba`` of a scikit-learn forest of as many trees."""
    import pickle

    import numpy as np
    from sklearn.ensemble import RandomForestClassifier

    golden = json.loads((run_folder / "model/golden.json").read_text())
    x = np.asarray(golden["encoded"], np.float32)
    forest = RandomForestClassifier(trees, random_state=0).fit(
        x, np.asarray(golden["expected"]).argmax(axis=1)
    )
    (base / "forest.pickle").write_bytes(pickle.dumps(forest))
    (base / "fastapi_app.py").write_text(APP.format(model=str(base / "forest.pickle")))
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "uvicorn", "fastapi_app:app", "--app-dir", str(base)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    with _running(command, base / "fastapi.log", f"http://127.0.0.1:{port}/ping"):
        yield f"127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], log: Path, ready: str) -> Iterator[None]:
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment["PATH"] = (
        f"{Path(sys.executable).parent}:{environment['PATH']}"  # mlflow calls uvicorn by name
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, env=environment
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(ready):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[2]} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except (OSError, urllib.error.URLError):
        return False
    return True
