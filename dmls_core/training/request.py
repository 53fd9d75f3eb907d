"""The request of a training run, and the choice of an engine for each model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from dmls_core.errors import EngineUnavailableError, SpecError, UserError
from dmls_core.hardware import find_gpus
from dmls_core.models import engine_class, for_engine
from dmls_core.spec import Hyperparameter, ModelDefinition, Spec
from dmls_core.store.layout import check_name
from dmls_core.training.inputs import DataFile

EngineChoice = Literal["auto", "cpu", "gpu"]


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """The request of a training run.

    Attributes:
        spec: path or ``s3://`` URL of ``spec.toml``, or of an accepted spec's ``.json``.
        data: paths or ``s3://`` URLs of the data files.
        out: folder or ``s3://`` URL that the run writes to.
        run_key: key of the run; made from spec and data if empty.
        engine: overrules the spec's ``[resources] engine`` unless ``auto``.
        etags: required ETags of the data, in the order of ``data``; empty for no check.
        since: rows before this moment, by ``[columns] time``, are left out.
        until: rows at this moment and later are left out.
        champion: folder or ``s3://`` URL of the run that made the champion; empty if there is none.
        champion_version: the champion's version in MLflow's registry.
        worker: number of this trainer among those that share the search; 0 leads.
    """

    spec: str
    data: tuple[str, ...]
    out: str
    team: str = "local"
    name: str = "model"
    run_key: str = ""
    engine: EngineChoice = "auto"
    etags: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    champion: str = ""
    champion_version: int = 0
    worker: int = 0

    def __post_init__(self) -> None:
        check_name("team", self.team)
        check_name("job", self.name)
        if not self.data:
            raise UserError("there is no data to train on: name at least one file")
        if self.etags and len(self.etags) != len(self.data):
            raise UserError(f"{len(self.etags)} ETags were given for {len(self.data)} data files")
        if self.since and not self.until:
            raise UserError("the beginning of an interval was given without its end: add --until")
        if self.worker < 0:
            raise UserError(f"there is no worker {self.worker}: they are numbered from 0")

    @property
    def leads(self) -> bool:
        """Whether this trainer refits, writes the result and reports the run's progress."""
        return self.worker == 0


@dataclass(frozen=True, slots=True)
class RequestedModel:
    """A model of a spec, the engine that fits it, and the search space on this engine."""

    model: ModelDefinition
    engine: str
    hyperparameters: dict[str, Hyperparameter]


@dataclass(frozen=True, slots=True)
class Job:
    """A request with its spec and data on this machine; ``out`` is the local folder of files to upload.

    ``study`` is the URL of the database with the study that the trainers share; empty for a single trainer.
    """

    request: TrainRequest
    spec: Spec
    models: tuple[RequestedModel, ...]
    key: str
    files: list[DataFile]
    out: Path
    study: str = field(default="", repr=False)


def choose_engine(
    wanted: EngineChoice, model: ModelDefinition, hyperparameters: Mapping[str, Hyperparameter]
) -> tuple[str, dict[str, Hyperparameter]]:
    """Return the engine and its search space; ``auto`` prefers the GPU if it supports the whole spec.

    Raises:
        SpecError: the requested engine does not support the model or a hyperparameter.
        EngineUnavailableError: it does, but not on this machine; the message says what is missing.
    """
    if wanted == "cpu":
        return "cpu", for_engine(model, hyperparameters, "cpu")
    try:
        space = for_engine(model, hyperparameters, "gpu")
    except SpecError:
        if wanted == "gpu":
            raise
        return "cpu", for_engine(model, hyperparameters, "cpu")
    if reason := missing_for_gpu(model):
        if wanted == "gpu":
            raise EngineUnavailableError(f"the gpu engine cannot run here: {reason}")
        return "cpu", for_engine(model, hyperparameters, "cpu")
    return "gpu", space


def missing_for_gpu(model: ModelDefinition) -> str:
    """Return what the gpu engine lacks on this machine; empty if nothing."""
    gpus = find_gpus()
    if not gpus:
        return "CUDA's driver offers no NVIDIA GPU to this process"
    if not any(gpu.usable for gpu in gpus):
        return (
            f"{gpus[0].name} is too old (compute capability {gpus[0].capability[0]}.{gpus[0].capability[1]})"
        )
    if missing := engine_class("gpu", model.name).missing_packages():
        return f"packages are not installed: {', '.join(missing)}"
    return ""
