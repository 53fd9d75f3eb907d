"""Admit a submission, reject it, or wait for the rest of it; and say so beside it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dmls_core.errors import ObjectMissingError, StoreError, UserError, ValidationIssue
from dmls_core.intake.answers import read_status, write_status
from dmls_core.intake.data_files import check_data, choose_data
from dmls_core.intake.status import State
from dmls_core.intake.submissions import Submission, file_name, group_submissions, lies_deeper
from dmls_core.settings import IntakeLimits
from dmls_core.store import JobRecord, ObjectInfo, Registry, Store, check_key, layout

if TYPE_CHECKING:
    from dmls_core.spec import Spec

logger = logging.getLogger(__name__)

_RETIRED = "The spec was taken away, so the job is retired; its history stays. "

LOOKS = 3
"""How often a submission is looked at again because it changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a drop.

    Attributes:
        state: as in ``_status.json``.
        message: in the user's words.
        record: the job's record where this drop is its current version, or has just retired it.
        issues: what is wrong with the drop.
        known: whether this very drop had its answer before.
    """

    state: State
    message: str
    record: JobRecord | None = None
    issues: tuple[ValidationIssue, ...] = ()
    known: bool = field(default=False, compare=False)


def admit(
    store: Store,
    team: str,
    job: str,
    *,
    links: Mapping[str, str] | None = None,
    limits: IntakeLimits | None = None,
) -> Outcome:
    """Look at what lies in ``incoming/<team>/<job>/``, register it if it is in order, and answer beside it.

    A drop that has its answer already, and has not changed since, is left alone; deleting
    ``_status.json`` has it looked at again. A job whose spec was taken away is retired.

    Args:
        store: holds the drop and the registry.
        team: as a ``Submission`` has it, fit or not.
        job: likewise.
        links: pages about the job, shown to the user once it is accepted.
        limits: from the environment if left out.

    Raises:
        StoreError: the store failed, or the answer could not be written.
    """
    limits = limits or IntakeLimits.from_environment()
    try:
        check_key(layout.incoming_file(team, job, layout.STATUS_JSON))
    except StoreError as error:
        logger.warning("a drop cannot be answered in its place: %s", error)
        return _rejected([ValidationIssue(str(error), hint="drop it into incoming/<team>/<job>/")])
    for _ in range(LOOKS):
        submission = _find(store, team, job)
        outcome = _answer(store, submission, links or {}, limits) if submission else _gone(store, team, job)
        # Another intake may have seen more than this one and have answered first.
        if _fingerprint(_find(store, team, job)) == _fingerprint(submission):
            break
    return outcome


def _find(store: Store, team: str, job: str) -> Submission | None:
    listing = store.list(layout.incoming_folder(team, job))
    found = [entry for entry in group_submissions(listing) if (entry.team, entry.job) == (team, job)]
    return found[0] if found else None


def _fingerprint(submission: Submission | None) -> str:
    return submission.fingerprint if submission else ""


def _answer(
    store: Store,
    submission: Submission,
    links: Mapping[str, str],
    limits: IntakeLimits,
) -> Outcome:
    team, job = submission.team, submission.job
    before = read_status(store, team, job)
    if before and before.fingerprint == submission.fingerprint:
        record = None if submission.issues else Registry(store).job(team, job)
        current = record if record and record.run_key == before.run_key else None
        return Outcome(before.state, before.message, current, before.errors, known=True)
    try:
        outcome = _decide(store, submission, limits)
    except UserError as error:
        outcome = _rejected(error.issues)
    record, run = outcome.record, ""
    now = read_status(store, team, job)
    if (
        outcome.state == "accepted"
        and record
        and now
        and now.run_key == record.run_key
        and now.state not in {"waiting", "rejected"}
    ):
        # The run that this asks for has begun or is over: how it went stays in sight.
        outcome, links = Outcome(now.state, now.message, record, now.errors), {**now.links, **links}
        run = now.run
    write_status(
        store,
        team,
        job,
        outcome.state,
        outcome.message,
        errors=outcome.issues,
        run_key=record.run_key if record else None,
        run=run,
        links=links if record else None,
        fingerprint=submission.fingerprint,
    )
    return outcome


def _decide(store: Store, submission: Submission, limits: IntakeLimits) -> Outcome:
    """Say what becomes of a submission.

    Raises:
        UserError: it is rejected.
    """
    if submission.issues:
        return _rejected(submission.issues)
    if submission.spec is None:
        return _without_spec(store, submission)
    try:
        spec = _load(store, submission.spec)
        data, issues = check_data(store, choose_data(submission, spec), spec, limits)
    except ObjectMissingError:
        return Outcome("waiting", "A file was taken away while it was looked at; drop it again.")
    if issues:
        return _rejected(issues)
    if not data:
        wanted = spec.data.path or "<name>.csv"
        message = f"Waiting for data: drop {wanted} beside {layout.SPEC_FILE}."
        if not spec.partitions and any(lies_deeper(submission, found) for found in submission.files):
            message += ' Files in folders are read as partitions only: [data] path = "data/{date}.csv".'
        return Outcome("waiting", message)
    now = datetime.now(UTC)
    # What each run chooses itself is no part of the job's version: new data makes no new version.
    pinned = [] if spec.chosen_by_run else data
    record = Registry(store).accept(
        spec, submission.team, submission.job, pinned, now, submission.fingerprint
    )
    return Outcome("accepted", _accepted(store, spec, record), record)


def _load(store: Store, found: ObjectInfo) -> Spec:
    """Read the spec, all of its errors at once.

    Raises:
        SpecError: it is not valid.
    """
    from dmls_core.models import load_spec
    from dmls_core.settings import SpecLimits

    limits = SpecLimits.from_environment()
    # One byte more than is allowed is enough for the parser to refuse it.
    content, _ = store.read(found.key, limit=limits.bytes + 1)
    return load_spec(content, layout.SPEC_FILE, limits=limits)


def _without_spec(store: Store, submission: Submission) -> Outcome:
    record = _retire(store, submission.team, submission.job)
    names = [file_name(found) for found in submission.files]
    others = [name for name in names if name.lower().endswith(".toml")]
    if others:
        message = f"Waiting for the spec: rename {others[0]} to {layout.SPEC_FILE}."
    else:
        message = f"Waiting for the spec: drop {layout.SPEC_FILE} beside {', '.join(names[:3])}."
    return Outcome("waiting", (_RETIRED + message) if record else message, record)


def _gone(store: Store, team: str, job: str) -> Outcome:
    """Retire what is not dropped any more; answer only where an answer lies already."""
    record = _retire(store, team, job)
    message = (_RETIRED if record else "") + f"Waiting for {layout.SPEC_FILE} and its data."
    if read_status(store, team, job):
        write_status(store, team, job, "waiting", message)
    return Outcome("waiting", message, record)


def _retire(store: Store, team: str, job: str) -> JobRecord | None:
    """Retire a job that is active; return its record if it was."""
    if not (layout.is_name(team) and layout.is_name(job)):
        return None
    registry = Registry(store)
    record = registry.job(team, job)
    return registry.retire(team, job) if record and record.state == "active" else None


def _rejected(issues: Sequence[ValidationIssue]) -> Outcome:
    count = f", {len(issues)} errors; the first" if len(issues) > 1 else ""
    return Outcome("rejected", f"Not accepted{count}: {issues[0]}", issues=tuple(issues))


def _accepted(store: Store, spec: Spec, record: JobRecord) -> str:
    models = ", ".join(model.name for model in spec.models)
    files = ", ".join(item.key.rpartition("/")[2] for item in record.data) or spec.data.path or "its data"
    trials = "1 trial" if spec.n_trials == 1 else f"{spec.n_trials} trials"
    what = f"Accepted as version {record.version}: {models}, {trials}, on {files}."
    if store.head(layout.run_folder(record.team, record.name, record.run_key) + layout.RESULT):
        return f"{what} This spec was trained on this data before; the result is taken from there."
    if spec.schedule and spec.schedule.cron:
        return f"{what} Training starts by itself, now and then by {spec.schedule.cron}."
    return f"{what} Training starts by itself."
