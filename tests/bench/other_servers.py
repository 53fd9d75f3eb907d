"""Other servers of the same trees, each in an environment that uv makes and the bench deletes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import sklearn

from dmls_core.devstack.programs import find_uv
from tests.bench.load import Plan, http_post
from tests.services.seaweed import free_ports

START_SECONDS = 90
ENVIRONMENTS = {
    "fastapi": "fastapi==0.136.3 uvicorn==0.54.0 httptools==0.9.0 uvloop==0.23.0 joblib==1.6.0 "
    "lightgbm==4.7.0 lleaves==1.3.0 llvmlite==0.44.0 onnxruntime==1.32.0",
    "mlserver": "mlserver==1.7.1 mlserver-sklearn==1.7.1 uvloop==0.21.0",
    "bentoml": "bentoml==1.4.39",
}
"""The servers' packages; scikit-learn's version is that of the forest."""

FASTAPI = """
import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel

{predict}
app = FastAPI()

class Rows(BaseModel):
    rows: list[list[float]]

@app.get("/ping")
def ping():
    return "ok"

@app.post("/predict")
def answer(body: Rows):
    return {{"probabilities": predict(np.asarray(body.rows, np.float32)).tolist()}}
"""

PREDICT = {
    "scikit-learn": "import joblib\npredict = joblib.load('forest.joblib').predict_proba",
    "ONNX Runtime": """
import onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession("forest.onnx", options, providers=["CPUExecutionProvider"])

def predict(rows):
    return session.run(["output__0"], {"input__0": rows})[0]
""",
    "lleaves": """
import lleaves

model = lleaves.Model(model_file="boosted.txt")
model.compile()

def predict(rows):
    return model.predict(rows, n_jobs=1)
""",
}

BENTOML = """
import bentoml
import joblib
import numpy as np

@bentoml.service(workers=1)
class Forest:
    def __init__(self):
        self.forest = joblib.load("forest.joblib")

    @bentoml.api
    def predict(self, rows: np.ndarray) -> np.ndarray:
        return self.forest.predict_proba(rows)
"""


@dataclass(frozen=True)
class Server:
    """A server: its name, process id, ``plan`` of requests for rows, and how ``read`` gets probabilities."""

    name: str
    process: int
    plan: Callable[[np.ndarray], Plan]
    read: Callable[[Any], Any]
    boosted: bool = False
    """It serves the LightGBM model, not the forest."""


def start_others(base: Path, stack: ExitStack) -> Iterator[Server]:
    """Start each server with the models in ``base``; name on stderr what could not be installed or run."""
    starts: list[tuple[str, Callable[[], Any]]] = [("MLflow", lambda: _mlflow(base))]
    starts += [("MLServer", lambda: _mlserver(base)), ("BentoML", lambda: _bentoml(base))]
    starts += [
        (f"FastAPI, {library}", lambda library=library: _fastapi(base, library)) for library in PREDICT
    ]
    for name, start in starts:
        try:
            yield stack.enter_context(start())
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{name} is left out: {error}", file=sys.stderr)


@contextmanager
def _mlflow(base: Path) -> Iterator[Server]:
    """Serve the model as DMLS logs it with ``mlflow models serve``, from this environment."""
    from mlflow.models import Model

    from dmls_core.tracking.model_folder import built_model

    with built_model(base / "forest", Model(), {}) as built:
        command = [
            str(Path(sys.executable).with_name("mlflow")),
            "models",
            "serve",
            "--model-uri",
            str(built),
        ]
        command += ["--env-manager", "local", "--host", "127.0.0.1", "--port"]
        with _running(base, command, "/ping") as (process, address):

            def plan(rows: np.ndarray) -> Plan:
                frame = {"columns": [f"p{i}" for i in range(rows.shape[1])], "data": rows.tolist()}
                return _post(address, "/invocations", {"dataframe_split": frame})

            yield Server(
                "MLflow", process, plan, lambda a: [list(row.values())[1:] for row in a["predictions"]]
            )


@contextmanager
def _mlserver(base: Path) -> Iterator[Server]:
    (folder := base / "mlserver").mkdir()
    ports = dict(zip(("grpc_port", "metrics_port"), free_ports(2), strict=True))
    settings = {"host": "127.0.0.1", **ports}
    model = {"name": "digits", "implementation": "mlserver_sklearn.SKLearnModel"}
    model |= {"parameters": {"uri": str(base / "forest.joblib")}}  # type: ignore[dict-item]
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    command = [str(_environment(base, "mlserver") / "mlserver"), "start", str(folder)]
    with _running(base, command, "/v2/models/digits/ready", "MLSERVER_HTTP_PORT") as (process, address):

        def plan(rows: np.ndarray) -> Plan:
            tensor = {"name": "x", "shape": rows.shape, "datatype": "FP32", "data": rows.ravel().tolist()}
            body = {"inputs": [tensor], "outputs": [{"name": "predict_proba"}]}
            return _post(address, "/v2/models/digits/infer", body)

        yield Server("MLServer", process, plan, lambda a: _shaped(a["outputs"][0]))


def _shaped(tensor: Mapping[str, Any]) -> np.ndarray:
    return np.reshape(tensor["data"], tensor["shape"])


@contextmanager
def _bentoml(base: Path) -> Iterator[Server]:
    (base / "bento.py").write_text(BENTOML)
    command = [str(_environment(base, "bentoml") / "bentoml"), "serve", "bento:Forest"]
    command += ["--host", "127.0.0.1", "--port"]
    with _running(base, command, "/readyz") as (process, address):
        yield Server(
            "BentoML",
            process,
            lambda rows: _post(address, "/predict", {"rows": rows.tolist()}),
            lambda answer: answer,
        )


@contextmanager
def _fastapi(base: Path, library: str) -> Iterator[Server]:
    app = f"app_{library.lower().replace(' ', '_').replace('-', '_')}"
    (base / f"{app}.py").write_text(FASTAPI.format(predict=PREDICT[library]))
    command = [str(_environment(base, "fastapi") / "uvicorn"), f"{app}:app", "--log-level", "warning"]
    command += ["--host", "127.0.0.1", "--port"]
    with _running(base, command, "/ping") as (process, address):
        yield Server(
            f"FastAPI, {library}",
            process,
            lambda rows: _post(address, "/predict", {"rows": rows.tolist()}),
            lambda answer: answer["probabilities"],
            boosted=library == "lleaves",
        )


def _post(address: str, path: str, body: Mapping[str, Any]) -> Plan:
    return http_post(address, path, json.dumps(body).encode())


def _environment(base: Path, name: str) -> Path:
    """Install a server's packages if they are not yet; return the folder of its programs."""
    packages = [*ENVIRONMENTS[name].split(), f"scikit-learn=={sklearn.__version__}"]
    return install(base / f"env-{name}", packages)


def install(folder: Path, packages: list[str], *options: str) -> Path:
    """Make an environment with packages; return the folder of its programs."""
    uv = find_uv(Path(__file__).resolve().parents[2])
    if uv is None:
        raise RuntimeError("uv is not installed")
    if not folder.is_dir():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
        command = [uv, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), *options]
        subprocess.run([*command, *packages], check=True)
    return folder / "bin"


@contextmanager
def _running(
    base: Path, command: list[str], ready: str, variable: str | None = None
) -> Iterator[tuple[int, str]]:
    """Run a server in ``base`` until it answers; its port is the last argument, or in a variable."""
    (port,) = free_ports(1)
    name = f"{Path(command[0]).name}-{port}"
    environment = {
        **os.environ,
        "PATH": f"{Path(command[0]).parent}:{os.environ['PATH']}",  # mlflow and bentoml call others by name
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "BENTOML_DO_NOT_TRACK": "true",
        "BENTOML_HOME": str(base / "bentoml-home"),
    }
    if variable:
        environment[variable] = str(port)
    else:
        command = [*command, str(port)]
    log = base / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, env=environment, cwd=base
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(f"http://127.0.0.1:{port}{ready}"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield process.pid, f"127.0.0.1:{port}"
    finally:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):  # it may have ended
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()  # BentoML's worker has a session of its own
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except (OSError, urllib.error.URLError):
        return False
    return True
