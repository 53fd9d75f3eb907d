"""Labels that came late, for the monitor: how well the versions did that answered, beside their training."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dmls_core.errors import DataError, NotFoundError, ObjectMissingError, Problem
from dmls_core.monitoring.requests import MAX_BYTES
from dmls_core.orchestration.label_files import (
    LabelState,
    attempt_of,
    fetch,
    list_labels,
    logged_files,
    name_of,
    newest_within,
    read_state,
)
from dmls_core.store import ObjectInfo, Store, layout

if TYPE_CHECKING:
    from dmls_core.evaluate.decay import Decay
    from dmls_core.monitoring.labels import Met

log = logging.getLogger(__name__)

LATEST = "latest-labels/"

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


@dataclass(frozen=True, slots=True)
class LabelLook:
    """What one look at a job's labels found.

    Attributes:
        state: to be noted.
        message: for the user; empty: nothing new.
        judged: the versions, the newest first.
        unread: what is wrong with files that cannot be read.
        page: address of the page; empty: none was written.
    """

    state: LabelState
    message: str = ""
    judged: tuple[Judged, ...] = ()
    unread: tuple[str, ...] = ()
    page: str = ""

    @property
    def told(self) -> Judged | None:
        """The version that the message is about: one with a score, decayed ones and the served one first."""
        found = [one for one in self.judged if one.decay.score is not None]
        found.sort(key=lambda one: (one.decay.verdict != "decayed", not one.champion))
        return found[0] if found else None

    @property
    def decayed_champion(self) -> str:
        """Key of the run of the version that is served, if it has decayed; else empty."""
        found = (one.run_key for one in self.judged if one.champion and one.decay.verdict == "decayed")
        return next(found, "")


def look_at_labels(
    store: Store, mlflow_uri: str, team: str, job: str, spec: Mapping[str, Any], logged: Sequence[ObjectInfo]
) -> LabelLook | None:
    """Compare the answers that new labels belong to; write page, JSON and metrics.

    Called again for the same files, it writes the same under the same names.

    Args:
        store: of the platform.
        mlflow_uri: the MLflow server.
        team: of the job.
        job: its name.
        spec: its spec as JSON.
        logged: the job's files of the inference log.

    Returns:
        ``None`` where there is nothing new.

    Raises:
        DmlsError: the store or MLflow does not answer.
    """
    path = spec["data"].get("labels")
    if path is None:
        return None
    state, there = read_state(store, team, job), list_labels(store, team, job, path)
    new = [info for info in there if state.files.get(info.key) != info.etag]
    if not new or state.tried == (attempt := attempt_of(new, logged)):
        return None
    with TemporaryDirectory(prefix="dmls-labels-") as scratch:
        met, unread = _meet(store, new, spec, logged, Path(scratch))
    judged = _judge(store, mlflow_uri, team, job, met) if met else ()
    keys = {info.key for info in there}
    seen = {key: etag for key, etag in state.files.items() if key in keys}
    problems = tuple(unread.values())
    if not any(one.decay.score is not None for one in judged):
        seen |= {info.key: info.etag for info in new if info.key in unread}
        waiting = name_of(info for info in new if info.key not in unread)
        attempt = attempt_of([info for info in new if info.key not in unread], logged)
        message = "" if waiting == state.waiting or met is None else _too_few(met, judged)
        return LabelLook(
            replace(state, files=seen, tried=attempt, waiting=waiting), message, judged, problems
        )
    seen |= {info.key: info.etag for info in new}
    at = datetime.now(UTC).isoformat(timespec="seconds")
    points = [_point(one, at) for one in reversed(judged) if one.decay.score is not None]
    state = LabelState(seen, history=[*state.history, *points])
    look = LabelLook(state, judged=judged, unread=problems)
    if look.told is None or met is None:
        return look
    message = look.told.decay.gist(look.told.version)
    document = {
        "schema": 1,
        "team": team,
        "job": job,
        "verdict": look.told.decay.verdict,
        "message": message,
        "at": at,
        "labels": met.labels,
        "met": met.frame.height,
        "notes": [*_notes(met, judged), *problems],
        "versions": [
            {"version": one.version, "run_key": one.run_key, "champion": one.champion, **one.decay.as_json()}
            for one in judged
        ],
        "history": state.as_json()["history"],
    }
    return replace(look, message=message, page=_write(store, document, name_of(new)))


def _meet(
    store: Store,
    new: Sequence[ObjectInfo],
    spec: Mapping[str, Any],
    logged: Sequence[ObjectInfo],
    scratch: Path,
) -> tuple[Met | None, dict[str, str]]:
    """Return which labels met answers, None if none could be read; and key -> what is wrong with a file."""
    from dmls_core.monitoring.labels import meet, read_labels

    unread: dict[str, str] = {}
    frames = []
    large = [info for info in new if info.size > MAX_BYTES]
    for info in large:
        most = f"at most {MAX_BYTES:,} bytes"
        problem = Problem(
            "the file of labels is too large", file=_file(info), found=f"{info.size:,}", expected=most
        )
        unread[info.key] = str(problem)
    for number, info in enumerate(newest_within([info for info in new if info not in large])):
        try:
            path = fetch(store, info, scratch, number)
            frames.append(
                read_labels(
                    path,
                    spec["columns"]["target"],
                    numbers=spec["task"] == "regression",
                    data_format=spec["data"]["format"],
                )
            )
        except DataError as error:
            unread[info.key] = str(error)
        except ObjectMissingError:
            log.info("%s was taken away", info.key)
    return meet(frames, logged_files(store, logged, scratch)) if frames else None, unread


def _judge(store: Store, mlflow_uri: str, team: str, job: str, met: Met) -> tuple[Judged, ...]:
    """Compare each version that answered with its own training."""
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


def _too_few(met: Met, judged: Sequence[Judged]) -> str:
    """Say why nothing could be judged."""
    if judged:
        most = max(judged, key=lambda one: one.decay.rows)
        return most.decay.gist(most.version)
    told = f"none of {met.labels:,} labels belongs to a logged answer"
    notes = _notes(met, ()) or [
        "is request_id what the requests gave as their id, and [drift] sample high enough?"
    ]
    return f"{told}; {'; '.join(notes)}"


def _notes(met: Met, judged: Sequence[Judged]) -> list[str]:
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


def _point(one: Judged, at: str) -> dict[str, Any]:
    """Return what is remembered of a comparison."""
    kept = ("verdict", "metric", "rows", "score", "interval", "trained_score")
    found = one.decay.as_json()
    return {"at": at, "version": one.version, **{key: found[key] for key in kept}}


def _write(store: Store, document: Mapping[str, Any], name: str) -> str:
    """Write the files of a comparison; return the page's address."""
    from dmls_core.evaluate.decay import RULE
    from dmls_core.monitoring.decay_page import decay_page
    from dmls_core.monitoring.exposition import decay_file
    from dmls_core.monitoring.prometheus import decay_text

    team, job = document["team"], document["job"]
    files = {
        "decay.html": decay_page(document, RULE).encode(errors="replace"),
        "decay.prom": decay_text(document).encode(),
        "decay.json": json.dumps(document, indent=1, allow_nan=False).encode(),
    }
    folder = layout.monitor_folder(team, job)
    for place in (f"labels-{name}/", LATEST):
        for file, content in files.items():
            store.put(f"{folder}{place}{file}", content)
    store.put(decay_file(team, job), files["decay.prom"])
    return f"{store.url}/{folder}labels-{name}/decay.html"


def _file(info: ObjectInfo) -> str:
    return info.key.rpartition("/")[2]
