"""A Triton server that is played: it loads what the repository's configuration says."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from dmls_core.data.encoder import Encoder
from dmls_core.errors import ServingError
from dmls_core.serving.deployment.deployment import Deployment
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.model_config import configured_versions

NAME = "lab.iris"


class PlayedTriton:
    """Loads, serves and fails as Triton does; answers golden rows with what they expect, plus ``error``."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.served: dict[str, int] = {}
        self.down = False
        self.error: dict[str, float] = {}
        self.loads = 0

    addresses: ClassVar[dict[str, str]] = {"http": "triton:8000", "grpc": "triton:8001"}

    def live(self) -> bool:
        return not self.down

    def load(self, name: str) -> None:
        if self.down:
            raise ServingError("Triton does not answer")
        self.loads += 1
        (version,) = configured_versions((self.repository.root / name / "config.pbtxt").read_text())
        checkpoint = self.repository.root / name / str(version) / "checkpoint.tl"
        if not name.endswith(".table") and checkpoint.read_bytes() == b"broken":
            raise ServingError(f"load failed for model {name!r}")
        self.served[name] = version

    def unload(self, name: str) -> None:
        self.served.pop(name, None)

    def versions(self, name: str) -> tuple[int, ...]:
        return (self.served[name],) if name in self.served else ()

    def ready(self, name):
        return name in self.served

    def config(self, name):
        return {"name": name, "runtime": "model.py"}

    def infer(self, name, rows, *, version=None, protocol="grpc"):
        if self.down:
            raise ServingError("Triton does not answer")
        if version not in (None, self.served.get(name)):
            raise ServingError(f"{name} version {version} is not at ready state")
        golden = self._golden(name)
        known = np.asarray(golden["encoded"], np.float32)
        places = [int(np.flatnonzero((known == row).all(axis=1))[0]) for row in rows]
        expected = np.asarray(golden["expected"], np.float32).reshape(len(known), -1)[places]
        expected[:, 0] += np.where(np.asarray(places) == 3, self.error.get(protocol, 0.0), 0.0)
        return expected

    def infer_tensors(self, name, tensors, *, protocol="grpc", request_id="dmls.own"):
        forest = name.removesuffix(".table")
        if request_id.startswith("dmls.candidate."):
            forest += ".candidate"
            assert request_id == f"dmls.candidate.{self.served[forest]}"
        golden, version = self._golden(forest), self.served[forest]
        rows = Encoder.from_json(
            self.repository.read(forest.removesuffix(".candidate"), version, "encoder.json")
        )
        outputs = self.infer(
            forest, rows.transform({k: v.ravel() for k, v in tensors.items()}), protocol=protocol
        )
        answer = {"version": np.full((len(outputs), 1), version), "value": outputs, "probabilities": outputs}
        if golden["labels"] is not None:
            answer["label"] = np.array(
                [golden["labels"][i].encode() for i in outputs.argmax(axis=1)], dtype=object
            )
        return Answer(answer)

    def _golden(self, name):
        return self.repository.read(name.removesuffix(".candidate"), self.served[name], "golden.json")


class Answer:
    def __init__(self, outputs: dict[str, np.ndarray]) -> None:
        self.as_numpy = outputs.get


@pytest.fixture(autouse=True)
def toy_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the check of checkpoints, which are no forests here, and the wait for a server's restart."""
    monkeypatch.setattr("dmls_core.serving.deployment.acceptance.check_model", lambda *_: None)
    monkeypatch.setattr("dmls_core.serving.triton.loading.RESTART_SECONDS", 0.0)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(str(tmp_path / "models"))


@pytest.fixture
def triton(repository: Repository) -> PlayedTriton:
    return PlayedTriton(repository)


@pytest.fixture
def deployment(repository: Repository, triton: PlayedTriton) -> Deployment:
    return Deployment(repository, triton, NAME)  # type: ignore[arg-type]
