"""Labels that came late, for the monitor: how well the versions did that answered, beside their training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dmls_core.airflow.monitor.apart import EndedError, Reader
from dmls_core.airflow.monitor.label_files import (
    LabelState,
    attempt_of,
    list_labels,
    name_of,
    read_state,
)
from dmls_core.airflow.monitor.label_judging import Judged, Met, judge_versions, left_out, read_labels
from dmls_core.airflow.monitor.label_record import point_of, write_record
from dmls_core.store import ObjectInfo, Store


@dataclass(frozen=True, slots=True)
class LabelLook:
    """What one look at a job's labels found.

    Attributes:
        state: to be noted.
        message: for the user; empty: nothing new.
        judged: the versions, the newest first.
        unread: what is wrong with files that cannot be read.
        page: address of the page; empty: none was written.
        failed: why the answers could not be looked through; empty: they could.
    """

    state: LabelState
    message: str = ""
    judged: tuple[Judged, ...] = ()
    unread: tuple[str, ...] = ()
    page: str = ""
    failed: str = ""

    @property
    def told(self) -> Judged | None:
        """The version that the message is about: one with a score, decayed ones and the served one first."""
        return next(iter(_scored(self.judged)), None)

    @property
    def decayed_champion(self) -> str:
        """Key of the run of the version that is served, if it has decayed; else empty."""
        found = (one.run_key for one in self.judged if one.champion and one.decay.verdict == "decayed")
        return next(found, "")


def look_at_labels(
    store: Store,
    reader: Reader,
    mlflow_uri: str,
    team: str,
    job: str,
    spec: Mapping[str, Any],
    logged: Sequence[ObjectInfo],
) -> LabelLook | None:
    """Compare the answers that new labels belong to; write page, JSON and metrics.

    Called again for the same files, it writes the same under the same names.

    Args:
        store: of the platform.
        reader: reads the files.
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
    if not new or state.tried == attempt_of(new, logged):
        return None
    keys = {info.key for info in there}
    state = replace(state, files={key: etag for key, etag in state.files.items() if key in keys})
    met: Met | None = None
    judged: tuple[Judged, ...] = ()
    with TemporaryDirectory(prefix="dmls-labels-") as scratch:
        files, unread = read_labels(store, reader, new, spec, Path(scratch))
        try:
            if files:
                met, judged = judge_versions(
                    store, reader, mlflow_uri, team, job, spec, files, logged, Path(scratch)
                )
        except EndedError as error:
            left = _wait(state, new, unread, logged, None, ())
            return replace(left, state=replace(left.state, waiting=state.waiting), failed=str(error))
    if met is None or not _scored(judged):
        return _wait(state, new, unread, logged, met, judged)
    return _tell(store, team, job, state, new, unread, met, judged)


def _scored(judged: Sequence[Judged]) -> list[Judged]:
    """Return the versions with a score, decayed ones and the served one first."""
    found = [one for one in judged if one.decay.score is not None]
    return sorted(found, key=lambda one: (one.decay.verdict != "decayed", not one.champion))


def _wait(
    state: LabelState,
    new: Sequence[ObjectInfo],
    unread: Mapping[str, str],
    logged: Sequence[ObjectInfo],
    met: Met | None,
    judged: tuple[Judged, ...],
) -> LabelLook:
    """Leave the labels for a later look, which has more of them or of the log, and say so once."""
    readable = [info for info in new if info.key not in unread]
    waiting = name_of(readable)
    message = "" if waiting == state.waiting or met is None else _too_few(met, judged)
    state = replace(
        state,
        files={**state.files, **{info.key: info.etag for info in new if info.key in unread}},
        tried=attempt_of(readable, logged),
        waiting=waiting,
    )
    return LabelLook(state, message, judged, tuple(unread.values()))


def _tell(
    store: Store,
    team: str,
    job: str,
    state: LabelState,
    new: Sequence[ObjectInfo],
    unread: Mapping[str, str],
    met: Met,
    judged: tuple[Judged, ...],
) -> LabelLook:
    """Note the labels as compared, and write what was found."""
    told, issues = _scored(judged)[0], tuple(unread.values())
    at = datetime.now(UTC).isoformat(timespec="seconds")
    points = [point_of(one, at) for one in reversed(judged) if one.decay.score is not None]
    state = LabelState(
        {**state.files, **{info.key: info.etag for info in new}}, history=[*state.history, *points]
    )
    message = told.decay.summary(told.version)
    document = {
        "schema": 1,
        "team": team,
        "job": job,
        "verdict": told.decay.verdict,
        "message": message,
        "at": at,
        "labels": met.labels,
        "met": met.rows,
        "notes": [*left_out(met, judged), *issues],
        "versions": [one.as_json() for one in judged],
        "history": state.as_json()["history"],
    }
    return LabelLook(state, message, judged, issues, write_record(store, document, name_of(new)))


def _too_few(met: Met, judged: Sequence[Judged]) -> str:
    """Say why nothing could be judged."""
    if judged:
        most = max(judged, key=lambda one: one.decay.rows)
        return most.decay.summary(most.version)
    told = f"none of {met.labels:,} labels belongs to a logged answer"
    notes = left_out(met, ()) or [
        "is request_id what the requests gave as their id, and [drift] sample high enough?"
    ]
    return f"{told}; {'; '.join(notes)}"
