"""Evaluate the versions whose predictions now have delayed labels, and write the results.

Reading label files and the log happens in the sandbox (``dmls_core.monitoring.sandboxed``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from dmls_core.errors import DataError, NotFoundError, ObjectMissingError, ValidationIssue
from dmls_core.monitoring import sandboxed
from dmls_core.monitoring.inference_log import MAX_BYTES
from dmls_core.monitoring.jobs import MonitoredJob
from dmls_core.monitoring.label_files import (
    LabelState,
    attempt_id,
    content_id,
    download_label_file,
    download_log_files,
    list_label_files,
    newest_within_limit,
    read_state,
)
from dmls_core.sandbox import SandboxError, Worker
from dmls_core.store import ObjectInfo, Store, layout

if TYPE_CHECKING:
    from dmls_core.evaluate.decay import Decay
    from dmls_core.tracking.registry import RegisteredVersion

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """Numbers of labels: all, those ``matched`` with a prediction, others as in ``LabelJoin``."""

    labels: int
    matched: int
    several: int
    ambiguous: int


@dataclass(frozen=True, slots=True)
class VersionEvaluation:
    """A version in MLflow's registry whose labeled predictions were compared with its holdout."""

    version: int
    run_key: str
    champion: bool
    decay: Decay

    @property
    def decayed(self) -> bool:
        """True if the version has decayed."""
        return self.decay.verdict == "decayed"

    @property
    def summary(self) -> str:
        """The result in one line."""
        return self.decay.summary(self.version)

    def as_json(self) -> dict[str, Any]:
        """Return the version's entry in ``decay.json``."""
        identity = {"version": self.version, "run_key": self.run_key, "champion": self.champion}
        return {**identity, **self.decay.as_json()}

    def history_entry(self, at: str) -> dict[str, Any]:
        """Return the version's entry in the history of ``labels.json``."""
        fields = ("verdict", "metric", "rows", "score", "interval", "trained_score")
        decay = self.decay.as_json()
        return {"at": at, "version": self.version, **{key: decay[key] for key in fields}}


@dataclass(frozen=True, slots=True)
class LabelCheck:
    """Result of one monitor run for a job's delayed labels.

    Attributes:
        state: the new content of ``labels.json``.
        message: for the user; empty if there is nothing new.
        evaluations: newest version first.
        unread: errors of files that cannot be read.
        page: address of the page; empty if none was written.
        failure: why the log could not be joined; empty if it was.
    """

    state: LabelState
    message: str = ""
    evaluations: tuple[VersionEvaluation, ...] = ()
    unread: tuple[str, ...] = ()
    page: str = ""
    failure: str = ""

    @property
    def headline(self) -> VersionEvaluation | None:
        """The evaluation that the message describes."""
        return next(iter(_ranked(self.evaluations)), None)

    @property
    def decayed_champion(self) -> str:
        """Run key of the champion if it has decayed, otherwise empty."""
        return next(
            (
                evaluation.run_key
                for evaluation in self.evaluations
                if evaluation.champion and evaluation.decayed
            ),
            "",
        )


def check_labels(
    store: Store, worker: Worker, mlflow_uri: str, job: MonitoredJob, logged: Sequence[ObjectInfo]
) -> LabelCheck | None:
    """Evaluate the predictions with new labels; write page, JSON and metrics; ``None``: nothing is new.

    A repeated call with the same files writes the same objects. ``logged`` are the job's files in the
    inference log.

    Raises:
        DmlsError: the store or MLflow does not answer.
    """
    path = job.spec["data"].get("labels")
    if path is None:
        return None
    state = read_state(store, job.team, job.name)
    present = list_label_files(store, job.team, job.name, path)
    new = [info for info in present if state.files.get(info.key) != info.etag]
    if not new or state.tried == attempt_id(new, logged):
        return None
    keys = {info.key for info in present}
    state = replace(state, files={key: etag for key, etag in state.files.items() if key in keys})
    counts: LabelCounts | None = None
    evaluations: tuple[VersionEvaluation, ...] = ()
    with TemporaryDirectory(prefix="dmls-labels-") as scratch:
        files, unread = _convert_labels(store, worker, job, new, Path(scratch))
        try:
            if files:
                counts, evaluations = _evaluate(store, worker, mlflow_uri, job, files, logged, Path(scratch))
        except SandboxError as error:
            waiting = _wait(state, new, unread, logged, None, ())
            return replace(waiting, state=replace(waiting.state, waiting=state.waiting), failure=str(error))
    if counts is None or not _ranked(evaluations):
        return _wait(state, new, unread, logged, counts, evaluations)
    return _write_results(store, job, state, new, unread, counts, evaluations)


def _convert_labels(
    store: Store, worker: Worker, job: MonitoredJob, new: Sequence[ObjectInfo], scratch: Path
) -> tuple[list[str], dict[str, str]]:
    """Convert label files to Parquet, oldest first; return them, and key -> error of the unreadable files."""
    unread = {info.key: _size_error(info) for info in new if info.size > MAX_BYTES}
    files = []
    for number, info in enumerate(newest_within_limit([info for info in new if info.key not in unread])):
        try:
            path = download_label_file(store, info, scratch, number)
            out = str(scratch / f"{number}.labels")
            worker.call(
                sandboxed.convert_labels,
                str(path),
                out,
                job.spec["columns"]["target"],
                job.spec["task"] == "regression",
                job.spec["data"],
                limits=job.limits(worker.limits),
                hint=sandboxed.HINT,
                file=path.name,
            )
            files.append(out)
        except DataError as error:
            unread[info.key] = str(error)
        except ObjectMissingError:
            log.info("%s has been deleted", info.key)
    return files, unread


def _size_error(info: ObjectInfo) -> str:
    limit, name = f"at most {MAX_BYTES:,} bytes", info.key.rpartition("/")[2]
    issue = ValidationIssue("the label file is too large", file=name, found=f"{info.size:,}", expected=limit)
    return str(issue)


def _evaluate(
    store: Store,
    worker: Worker,
    mlflow_uri: str,
    job: MonitoredJob,
    files: Sequence[str],
    logged: Sequence[ObjectInfo],
    scratch: Path,
) -> tuple[LabelCounts, tuple[VersionEvaluation, ...]]:
    """Join labels with the log, and compare each version with its training, newest first."""
    from dmls_core.evaluate.decay import Decay
    from dmls_core.tracking.registry import find_champion, served_as

    model = layout.model_name(job.team, job.name)
    paths = download_log_files(store, logged, scratch)
    served: dict[int, RegisteredVersion] = {}

    def reply(question: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        if "version" not in question:
            path = next(paths, None)
            return None if path is None else str(path)
        version = int(question["version"])
        try:
            served[version] = served_as(mlflow_uri, model, version)
            run = layout.run_folder(job.team, job.name, served[version].run_key)
            return json.loads(store.get(run + layout.RESULT))
        except (NotFoundError, ObjectMissingError) as error:
            log.warning("version %s of %s in Triton is not evaluated: %s", version, model, error)
            return None

    outcome = worker.call(
        sandboxed.evaluate_versions,
        list(files),
        limits=job.limits(worker.limits),
        hint=sandboxed.HINT,
        file="logged requests",
        reply=reply,
    )
    counts = LabelCounts(outcome["labels"], outcome["matched"], outcome["several"], outcome["ambiguous"])
    evaluations = [
        VersionEvaluation(
            served[version].version, served[version].run_key, champion=False, decay=Decay.from_json(decay)
        )
        for version, decay in outcome["evaluations"]
    ]
    if not evaluations:
        return counts, ()
    try:
        champion = find_champion(mlflow_uri, model).version
    except NotFoundError:
        champion = 0
    return counts, tuple(replace(each, champion=each.version == champion) for each in evaluations)


def _ranked(evaluations: Sequence[VersionEvaluation]) -> list[VersionEvaluation]:
    """Return the versions that have a score; decayed versions and the champion come first."""
    scored = [evaluation for evaluation in evaluations if evaluation.decay.score is not None]
    return sorted(scored, key=lambda evaluation: (not evaluation.decayed, not evaluation.champion))


def _wait(
    state: LabelState,
    new: Sequence[ObjectInfo],
    unread: Mapping[str, str],
    logged: Sequence[ObjectInfo],
    counts: LabelCounts | None,
    evaluations: tuple[VersionEvaluation, ...],
) -> LabelCheck:
    """Leave the labels to a later run with more labels or a longer log; the message appears once."""
    readable = [info for info in new if info.key not in unread]
    waiting = content_id(readable)
    message = "" if waiting == state.waiting or counts is None else _too_few(counts, evaluations)
    state = replace(
        state,
        files={**state.files, **{info.key: info.etag for info in new if info.key in unread}},
        tried=attempt_id(readable, logged),
        waiting=waiting,
    )
    return LabelCheck(state, message, evaluations, tuple(unread.values()))


def _too_few(counts: LabelCounts, evaluations: Sequence[VersionEvaluation]) -> str:
    """Return why no version has a score."""
    if evaluations:
        return max(evaluations, key=lambda evaluation: evaluation.decay.rows).summary
    notes = _notes(counts, ()) or [
        (
            "the log of the latest requests may arrive later, and the labels are tried again for a day; "
            "otherwise check that request_id is that of the requests, and that [drift] sample is high enough"
        )
    ]
    return f"none of {counts.labels:,} labels belongs to a logged prediction; {'; '.join(notes)}"


def _notes(counts: LabelCounts, evaluations: Sequence[VersionEvaluation]) -> list[str]:
    notes = []
    if counts.several:
        notes.append(
            f"{counts.several:,} requests had several rows: add a column row with the row of each label"
        )
    if counts.ambiguous:
        notes.append(f"{counts.ambiguous:,} labels were left out: several requests share their request id")
    if unknown := sum(evaluation.decay.unknown for evaluation in evaluations):
        notes.append(f"{unknown:,} labels are of classes that the model does not know")
    return notes


def _write_results(
    store: Store,
    job: MonitoredJob,
    state: LabelState,
    new: Sequence[ObjectInfo],
    unread: Mapping[str, str],
    counts: LabelCounts,
    evaluations: tuple[VersionEvaluation, ...],
) -> LabelCheck:
    from dmls_core.evaluate.decay import RULE
    from dmls_core.monitoring.pages import decay_page
    from dmls_core.monitoring.prometheus import decay_file, decay_metrics

    headline, issues = _ranked(evaluations)[0], tuple(unread.values())
    at = datetime.now(UTC).isoformat(timespec="seconds")
    entries = [
        evaluation.history_entry(at)
        for evaluation in reversed(evaluations)
        if evaluation.decay.score is not None
    ]
    state = LabelState(
        {**state.files, **{info.key: info.etag for info in new}}, history=[*state.history, *entries]
    )
    document = {
        "schema": 1,
        "team": job.team,
        "job": job.name,
        "verdict": headline.decay.verdict,
        "message": headline.summary,
        "at": at,
        "labels": counts.labels,
        "matched": counts.matched,
        "notes": [*_notes(counts, evaluations), *issues],
        "versions": [evaluation.as_json() for evaluation in evaluations],
        "history": state.as_json()["history"],
    }
    files = {
        "decay.html": decay_page(document, RULE).encode(errors="replace"),
        "decay.prom": decay_metrics(document).encode(),
        "decay.json": json.dumps(document, indent=1, allow_nan=False).encode(),
    }
    folder = layout.monitor_folder(job.team, job.name)
    labels_folder = f"labels-{content_id(new)}/"
    for subfolder in (labels_folder, layout.LABELS_FOLDER):
        for file, content in files.items():
            store.put(f"{folder}{subfolder}{file}", content)
    store.put(decay_file(job.team, job.name), files["decay.prom"])
    page = f"{store.url}/{folder}{labels_folder}decay.html"
    return LabelCheck(state, headline.summary, evaluations, issues, page)
