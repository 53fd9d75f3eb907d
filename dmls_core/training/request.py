"""The request of a training run: its spec and data, fetched and checked, and the engine of each model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from dmls_core import sandbox
from dmls_core.errors import (
    ConflictError,
    DataError,
    EngineUnavailableError,
    ObjectMissingError,
    SpecError,
    UserError,
    ValidationIssue,
)
from dmls_core.hardware import find_gpus
from dmls_core.intake.submissions import check_files_exist
from dmls_core.models import engine_class, for_engine, load_spec
from dmls_core.settings import SpecLimits
from dmls_core.spec import Hyperparameter, ModelDefinition, Spec
from dmls_core.store import open_store
from dmls_core.store.layout import check_name
from dmls_core.training.known_hashes import KnownHashes


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A data file on this machine; ``url`` is its address in the request.

    ``etag`` is the store's, or the start of the SHA-256 of a local file without one.
    """

    url: str
    path: Path
    etag: str
    size: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return the file's entry in ``result.json``."""
        return {"url": self.url, "etag": self.etag, "bytes": self.size, "sha256": self.sha256}


def read_spec(url: str) -> Spec:
    """Read ``spec.toml`` or an accepted spec's JSON; raise ``SpecError`` if it is missing or invalid."""
    folder, name = _split(url)
    try:
        content = open_store(folder).get(name) if "://" in url else _read_local(Path(url))
    except (ObjectMissingError, FileNotFoundError, IsADirectoryError) as error:
        raise SpecError(ValidationIssue("there is no such file", file=url)) from error
    if not name.endswith(".json"):
        return load_spec(content, file=name, deploys=False)
    try:
        return Spec.from_json(json.loads(content), file=name)
    except ValueError as error:
        raise SpecError(ValidationIssue("is not JSON", file=name)) from error


def _read_local(path: Path) -> bytes:
    with path.open("rb") as file:  # which a device has without end
        return file.read(-1 if path.suffix == ".json" else SpecLimits.from_environment().bytes + 1)


def fetch_data(
    urls: Sequence[str], etags: Sequence[str], scratch: Path, hashes: KnownHashes | None = None
) -> list[FetchedFile]:
    """Download data files (paths or ``s3://`` URLs) to ``scratch``; local ones stay in place.

    A file whose hash is in ``hashes`` is not hashed again.

    Raise ``DataError`` if a file is missing, or a pipe or a device, or its ETag is not that of ``etags``
    (empty: no check).
    """
    files: list[FetchedFile] = []
    hashes = hashes or KnownHashes(None)
    for number, url in enumerate(urls):
        requested_etag = etags[number] if etags else None
        exists = "://" not in url and Path(url).exists() and not Path(url).is_dir()
        if exists and (issues := check_files_exist([Path(url)])):
            raise DataError(issues)
        try:
            path, etag = _fetch(url, requested_etag, scratch / "data" / str(number))
        except (ObjectMissingError, FileNotFoundError, IsADirectoryError) as error:
            raise DataError(ValidationIssue("there is no such file", file=url)) from error
        except ConflictError as error:
            raise DataError(
                ValidationIssue(
                    "the data is not what was accepted: it has changed since",
                    file=url,
                    expected=f"ETag {requested_etag}",
                    hint="drop the spec again to train on the data as it is now",
                )
            ) from error
        sha256 = hashes.sha256(url, path, etag if "://" in url else "")
        files.append(FetchedFile(url, path, etag or sha256[:32], path.stat().st_size, sha256))
    return files


def convert_data(files: Sequence[FetchedFile], spec: Spec, folder: Path) -> list[FetchedFile]:
    """Convert files that are not plain CSV or Parquet; raise ``DataError`` if one is not as the spec says."""
    from dmls_core.data.formats.conversion import convert_all
    from dmls_core.data.formats.names import needs_conversion

    if not any(needs_conversion(file.path.name, spec.data) for file in files):
        return list(files)
    limits = sandbox.Limits(memory=0, seconds=0, cpu_seconds=0, threads=0)
    names = [str(file.path) for file in files]
    paths = sandbox.run(convert_all, names, spec.data.model_dump(), str(folder), limits=limits)
    return [replace(file, path=Path(path)) for file, path in zip(files, paths, strict=True)]


def cut_data(
    files: Sequence[FetchedFile], spec: Spec, since: datetime | None, until: datetime, folder: Path
) -> list[FetchedFile]:
    """Leave out rows whose ``[columns] time`` is outside of an interval, and files without other rows.

    Raise ``DataError`` if a file has no such column or no time in it, or if no row is left.
    """
    from dmls_core.data.table.time_filter import TimeFilter, filter_files

    if spec.columns.time is None:
        return list(files)
    cut = TimeFilter(spec.columns.time, since, until, spec.timezone, spec.columns.date_order)
    paths = filter_files([file.path for file in files], cut, folder, data_format=spec.data.format)
    return [replace(file, path=path) for file, path in zip(files, paths, strict=True) if path]


def _fetch(url: str, etag: str | None, folder: Path) -> tuple[Path, str]:
    """Return the local path of a file, and its ETag if a store gave one."""
    if "://" not in url and etag is None:
        return Path(url).resolve(strict=True), ""
    folder_url, name = _split(url if "://" in url else str(Path(url).resolve(strict=True)))
    store = open_store(folder_url)
    if "://" in url:
        folder.mkdir(parents=True)
        return folder / name, store.download(name, folder / name, etag=etag).etag
    info = store.head(name)
    if info is None or info.etag != etag:
        raise ConflictError(f"{url} has changed")
    return Path(url).resolve(), info.etag


def _split(url: str) -> tuple[str, str]:
    """Split an address into its folder and the file's name."""
    if "://" in url:
        folder, _, name = url.rpartition("/")
        return folder, name
    path = PurePosixPath(Path(url).absolute())
    return str(path.parent), path.name


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
        champion: folder or ``s3://`` URL of the run that made the champion, with whose hyperparameters the
            search starts; empty if there is none.
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
class TrainingJob:
    """A request with its spec and data on this machine; ``out`` is the local folder of files to upload.

    ``study`` is the URL of the database with the study that the trainers share; empty for a single trainer.
    """

    request: TrainRequest
    spec: Spec
    models: tuple[RequestedModel, ...]
    key: str
    files: list[FetchedFile]
    out: Path
    study: str = field(default="", repr=False)


def choose_engine(
    device: EngineChoice,
    model: ModelDefinition,
    hyperparameters: Mapping[str, Hyperparameter],
    *,
    weighted: bool = False,
) -> tuple[str, dict[str, Hyperparameter]]:
    """Return the engine and its search space; ``auto`` prefers the GPU if it supports the whole spec.

    Raises:
        SpecError: the requested engine does not support the model, a hyperparameter or ``weighted`` rows.
        EngineUnavailableError: it does, but not on this machine; the message says what is missing.
    """
    if device == "cpu":
        return "cpu", for_engine(model, hyperparameters, "cpu", weighted=weighted)
    try:
        space = for_engine(model, hyperparameters, "gpu", weighted=weighted)
    except SpecError:
        if device == "gpu":
            raise
        return "cpu", for_engine(model, hyperparameters, "cpu", weighted=weighted)
    if reason := missing_for_gpu(model):
        if device == "gpu":
            raise EngineUnavailableError(f"the gpu engine cannot run here: {reason}")
        return "cpu", for_engine(model, hyperparameters, "cpu", weighted=weighted)
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
