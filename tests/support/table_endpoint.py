"""Serve a forest with its table endpoint and ask it, for tests."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import treelite

from dmls_core.data.encoder import Encoder, NumberFeature
from dmls_core.serving import Deployment, Repository, TritonClient
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.triton.model_config import table_name
from tests.support.trained_run import trained_run

names = (f"lab.table{number}" for number in itertools.count())


def change_encoder(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the encoder of a run's ``model/`` folder, and its golden rows and its description with it."""
    encoder, golden, about = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("encoder", "golden", "model")
    )
    change(encoder)
    made = Encoder.from_json(encoder)
    columns = dict(zip(made.feature_names, golden["columns"].values(), strict=True))
    encoded = made.transform(columns)
    served = checkpoint.predict(checkpoint.load(folder / "checkpoint.tl"), encoded)
    labels = made.target.labels and list(made.target.labels)
    golden |= {"columns": columns, "encoded": encoded.tolist(), "labels": labels}
    golden["expected"] = served.reshape(len(encoded), -1).tolist()
    about |= {"features": list(columns), "labels": labels}
    for name, content in {"encoder": encoder, "golden": golden, "model": about}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def request_body(encoder: Encoder, rows: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the JSON request for raw rows; None is a missing value."""
    inputs = []
    for feature in encoder.features:
        values = rows[feature.name]
        if isinstance(feature, NumberFeature):
            kind, data = "FP64", [float("nan") if v is None else float(v) for v in values]
        else:
            kind, data = "BYTES", ["" if v is None else str(v) for v in values]
        inputs.append({"name": feature.name, "datatype": kind, "shape": [len(data), 1], "data": data})
    return {"inputs": inputs}


def post(address: str, model: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """POST an inference request as any HTTP client does; return status and answer."""
    request = urllib.request.Request(
        f"http://{address}/v2/models/{model}/infer", data=json.dumps(body).encode(), method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = response.read()
            return int(response.status), json.loads(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def outputs_of(answer: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the outputs of a JSON answer by name, in their shapes."""
    return {output["name"]: np.array(output["data"]).reshape(output["shape"]) for output in answer["outputs"]}


def ask_grpc(address: str, name: str, body: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Ask over gRPC what ``body`` asks over HTTP; outputs by name."""
    import tritonclient.grpc as triton

    inputs = []
    for tensor in body["inputs"]:
        made = triton.InferInput(tensor["name"], tensor["shape"], tensor["datatype"])
        kind = {"FP64": np.float64, "FP32": np.float32, "BYTES": object}[tensor["datatype"]]
        made.set_data_from_numpy(np.array(tensor["data"], dtype=kind).reshape(tensor["shape"]))
        inputs.append(made)
    with triton.InferenceServerClient(address) as client:
        answer = client.infer(name, inputs, client_timeout=60)
    return {output.name: answer.as_numpy(output.name) for output in answer.get_response().outputs}


class Served:
    """A forest of ``trained_run`` that is served with its table endpoint."""

    def __init__(
        self,
        repository: Repository,
        client: TritonClient,
        folder: Path,
        name: str | None = None,
        **options: bool,
    ) -> None:
        self.repository, self.client, self.folder = repository, client, folder
        self.name = name or next(names)
        if not folder.exists():
            trained_run(folder, **options)  # type: ignore[arg-type]
        self.version = Deployment(repository, client, self.name).deploy(folder / "model").version
        self.encoder = Encoder.from_json(json.loads((folder / "model/encoder.json").read_text()))
        self.forest = treelite.Model.deserialize(folder / "model/checkpoint.tl")

    def post(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        return post(self.client.addresses["http"], table_name(self.name), body)

    def ask(self, rows: Mapping[str, Sequence[Any]], protocol: str = "http") -> dict[str, np.ndarray]:
        body = request_body(self.encoder, rows)
        if protocol == "grpc":
            return ask_grpc(self.client.addresses["grpc"], table_name(self.name), body)
        status, answer = self.post(body)
        assert status == 200, answer
        return outputs_of(answer)

    def expected(self, rows: Mapping[str, Sequence[Any]]) -> np.ndarray:
        return checkpoint.predict(self.forest, self.encoder.transform(rows))
