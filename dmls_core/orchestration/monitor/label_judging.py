"""New labels and the answers that they belong to: how well did each version do beside its training?"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.errors import DataError, NotFoundError, ObjectMissingError, Problem
from dmls_core.monitoring.requests import MAX_BYTES
from dmls_core.orchestration.monitor.label_files import fetch, logged_files, newest_within
from dmls_core.store import ObjectInfo, Store, layout

if TYPE_CHECKING:
    import polars as pl

    from dmls_core.evaluate.decay import Decay
    from dmls_core.monitoring.labels import Met

log = logging.getLogger(__name__)

VERSIONS = 10
"""Versions that one look judges: the newest that have labelled answers."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A version whose labelled answers were compared with its training.

    Attributes:
        version: in MLflow's registry.
        run_key: of the run that made it.
        champion: whether it is served now.
        decay: what was found.
    """

    version: int
    run_key: str
    champion: bool
    decay: Decay

    def as_json(self) -> dict[str, Any]:
        """Return what ``decay.json`` says of the version."""
        about = {"version": self.version, "run_key": self.run_key, "champion": self.champion}
        return {**about, **self.decay.as_json()}


def meet_answers(
    store: Store,
    new: Sequence[ObjectInfo],
    spec: Mapping[str, Any],
    logged: Sequence[ObjectInfo],
    scratch: Path,
) -> tuple[Met | None, dict[str, str]]:
    """Find the logged answers that labels belong to.

    Args:
        store: of the platform.
        new: the files of labels, the oldest first; of many, the newest are read.
        spec: the job's spec as JSON.
        logged: the job's files of the inference log.
        scratch: an empty folder.

    Returns:
        What met, ``None`` if no file could be read; and key -> what is wrong with a file.
    """
    from dmls_core.monitoring.labels import meet

    unread = {info.key: _too_large(info) for info in new if info.size > MAX_BYTES}
    frames = []
    for number, info in enumerate(newest_within([info for info in new if info.key not in unread])):
        try:
            frames.append(_read(fetch(store, info, scratch, number), spec))
        except DataError as error:
            unread[info.key] = str(error)
        except ObjectMissingError:
            log.info("%s was taken away", info.key)
    return meet(frames, logged_files(store, logged, scratch)) if frames else None, unread


def _too_large(info: ObjectInfo) -> str:
    most, name = f"at most {MAX_BYTES:,} bytes", info.key.rpartition("/")[2]
    return str(Problem("the file of labels is too large", file=name, found=f"{info.size:,}", expected=most))


def _read(path: Path, spec: Mapping[str, Any]) -> pl.DataFrame:
    from dmls_core.monitoring.labels import read_labels

    return read_labels(
        path,
        spec["columns"]["target"],
        numbers=spec["task"] == "regression",
        data_format=spec["data"]["format"],
    )


def judge_versions(store: Store, mlflow_uri: str, team: str, job: str, met: Met) -> tuple[Judged, ...]:
    """Compare each version that answered with its own training, the newest first.

    Args:
        store: of the platform.
        mlflow_uri: the MLflow server.
        team: of the job.
        job: its name.
        met: labels and the answers that they belong to.

    Raises:
        DmlsError: the store or MLflow does not answer.
    """
    from dmls_core.evaluate.decay import Trained, judge
    from dmls_core.tracking import find_champion, served_as

    name = layout.model_name(team, job)
    judged = []
    for triton_version, _ in met.versions[:VERSIONS]:
        try:
            served = served_as(mlflow_uri, name, triton_version)
            result = json.loads(store.get(layout.run_folder(team, job, served.run_key) + layout.RESULT))
        except (NotFoundError, ObjectMissingError) as error:
            log.warning("version %s of %s in Triton is not judged: %s", triton_version, name, error)
            continue
        trained = Trained.of(result)
        decay = judge(trained, *met.pairs(triton_version, trained.labels))
        judged.append(Judged(served.version, served.run_key, champion=False, decay=decay))
    if not judged:
        return ()
    try:
        champion = find_champion(mlflow_uri, name).version
    except NotFoundError:
        champion = 0
    return tuple(replace(one, champion=one.version == champion) for one in judged)


def left_out(met: Met, judged: Sequence[Judged]) -> list[str]:
    """Say what was left out."""
    notes = []
    if met.several:
        notes.append(
            f"{met.several:,} requests had several rows: say in a column row which label is of which"
        )
    if met.ambiguous:
        notes.append(
            f"{met.ambiguous:,} labels were left out: their request id was given to several requests"
        )
    if unknown := sum(one.decay.unknown for one in judged):
        notes.append(f"{unknown:,} labels are of classes that the model does not know")
    return notes
