"""New labels and the answers that they belong to: how well did each version do beside its training?"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.airflow.monitor.apart import Reader
from dmls_core.airflow.monitor.label_files import fetch, logged_files, newest_within
from dmls_core.errors import DataError, NotFoundError, ObjectMissingError, ValidationIssue
from dmls_core.monitoring.inference_log import MAX_BYTES
from dmls_core.store import ObjectInfo, Store, layout

if TYPE_CHECKING:
    from dmls_core.evaluate.decay import Decay
    from dmls_core.tracking import Champion

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Met:
    """How many labels met logged answers.

    Attributes:
        labels: distinct ones that were read.
        rows: those that met an answer.
        several: request ids without a row whose requests had several rows: not known which is meant.
        ambiguous: labels whose request id and row belong to different answers.
    """

    labels: int
    rows: int
    several: int
    ambiguous: int


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


def read_labels(
    store: Store, reader: Reader, new: Sequence[ObjectInfo], spec: Mapping[str, Any], scratch: Path
) -> tuple[list[str], dict[str, str]]:
    """Read files of labels.

    Args:
        store: of the platform.
        reader: reads the files.
        new: the files of labels, the oldest first; of many, the newest are read.
        spec: the job's spec as JSON.
        scratch: an empty folder.

    Returns:
        Files for ``judge_versions``, the oldest first; and key -> what is wrong with a file.
    """
    unread = {info.key: _too_large(info) for info in new if info.size > MAX_BYTES}
    files = []
    for number, info in enumerate(newest_within([info for info in new if info.key not in unread])):
        try:
            path = fetch(store, info, scratch, number)
            out = str(scratch / f"{number}.labels")
            reader.ask(
                "labels",
                spec,
                path.name,
                file=str(path),
                out=out,
                target=spec["columns"]["target"],
                numbers=spec["task"] == "regression",
                data_format=spec["data"]["format"],
            )
            files.append(out)
        except DataError as error:
            unread[info.key] = str(error)
        except ObjectMissingError:
            log.info("%s was taken away", info.key)
    return files, unread


def _too_large(info: ObjectInfo) -> str:
    most, name = f"at most {MAX_BYTES:,} bytes", info.key.rpartition("/")[2]
    return str(
        ValidationIssue("the file of labels is too large", file=name, found=f"{info.size:,}", expected=most)
    )


def judge_versions(
    store: Store,
    reader: Reader,
    mlflow_uri: str,
    team: str,
    job: str,
    spec: Mapping[str, Any],
    files: Sequence[str],
    logged: Sequence[ObjectInfo],
    scratch: Path,
) -> tuple[Met, tuple[Judged, ...]]:
    """Find the logged answers that labels belong to; compare each version with its training, newest first.

    Args:
        store: of the platform.
        reader: reads the files.
        mlflow_uri: the MLflow server.
        team: of the job.
        job: its name.
        spec: the job's spec as JSON.
        files: what ``read_labels`` returned.
        logged: the job's files of the inference log.
        scratch: a folder.

    Raises:
        EndedError: a file of the log ended its reader.
        DmlsError: the store or MLflow does not answer.
    """
    from dmls_core.evaluate.decay import Decay
    from dmls_core.tracking import find_champion, served_as

    name = layout.model_name(team, job)
    paths = logged_files(store, logged, scratch)
    served: dict[int, Champion] = {}

    def give(wanted: Mapping[str, Any]) -> Any:
        if "version" not in wanted:
            path = next(paths, None)
            return None if path is None else str(path)
        version = int(wanted["version"])
        try:
            served[version] = served_as(mlflow_uri, name, version)
            run = layout.run_folder(team, job, served[version].run_key)
            return json.loads(store.get(run + layout.RESULT))
        except (NotFoundError, ObjectMissingError) as error:
            log.warning("version %s of %s in Triton is not judged: %s", version, name, error)
            return None

    found = reader.ask("decay", spec, "logged requests", give, files=files)
    met = Met(found["labels"], found["rows"], found["several"], found["ambiguous"])
    judged = []
    for version, decay in found["decays"]:
        of = served[version]
        judged.append(Judged(of.version, of.run_key, champion=False, decay=Decay.from_json(decay)))
    if not judged:
        return met, ()
    try:
        champion = find_champion(mlflow_uri, name).version
    except NotFoundError:
        champion = 0
    return met, tuple(replace(one, champion=one.version == champion) for one in judged)


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
