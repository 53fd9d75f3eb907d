"""Admit a submission, reject it, or wait for missing files, and write its status."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dmls_core.errors import DmlsError, ObjectMissingError, StoreError, UserError, ValidationIssue
from dmls_core.html.formats import at_most
from dmls_core.intake.column_check import Findings, sample_note
from dmls_core.intake.data_files import check_data, choose_data
from dmls_core.intake.environment import hash_environment
from dmls_core.intake.status import CHECKING, State, Status
from dmls_core.intake.status_store import NOTE, read_status, renew_status, report_checking, write_status
from dmls_core.intake.submissions import Submission, file_name, group_submissions, is_nested
from dmls_core.settings import IntakeLimits
from dmls_core.store import JobRecord, ObjectInfo, Registry, Store, check_key, layout

if TYPE_CHECKING:
    from dmls_core.spec import Spec

logger = logging.getLogger(__name__)

_RETIRED = "The spec was deleted, so the job is retired; its history stays. "

CheckConnections = Callable[[str, "Spec"], Findings]
"""Returns what is found in the ``[data.source]`` of a team's spec."""

_SOURCELESS = ValidationIssue(
    "a source can be checked by Airflow only", hint="start a run of the DAG dmls.intake", key="data.source"
)

_NO_GPU = ValidationIssue(
    "the platform offers no GPU",
    hint='write "auto" or "cpu"; as soon as the platform offers a GPU, the spec is checked again by itself',
    file=layout.SPEC_FILE,
    key="resources.engine",
    found='"gpu"',
)

_ATTEMPTS = 3
"""Number of checks of a submission that changes meanwhile."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of checking a submission; ``state`` and ``message`` as in ``_status.json``.

    Attributes:
        record: the job's record if this submission is its current version or has just retired it.
        issues: the reasons for a rejection.
        notes: what the user should know of the data; see ``data_notes``.
        unchanged: whether this was the answer before, to the same upload.
        outside: whether a rejection depends on more than the files and this installation: on a source.
    """

    state: State
    message: str
    record: JobRecord | None = None
    issues: tuple[ValidationIssue, ...] = ()
    notes: tuple[str, ...] = ()
    unchanged: bool = field(default=False, compare=False)
    outside: bool = False


def admit(
    store: Store,
    team: str,
    job: str,
    *,
    links: Mapping[str, str] | None = None,
    limits: IntakeLimits | None = None,
    memory: str | None = None,
    gpus: int | None = None,
    check_connections: CheckConnections | None = None,
) -> Outcome:
    """Admit or reject the submission in ``incoming/<team>/<job>/``, and write its status.

    A submission that was checked and has not changed since is left alone, unless it was rejected and was
    uploaded again, or the cause may have gone: other packages are installed, limits or the number of GPUs
    were changed, or it has a source. After ``_status.json`` is deleted, a submission is checked again. A job
    whose spec was deleted is retired.

    ``team`` and ``job`` may be invalid names. ``links`` (name -> URL) go into the status of an accepted
    submission. ``memory`` is the memory limit of a trainer, such as ``4g``, for a spec without
    ``[resources] memory``; ``gpus`` is the number that the runner offers, ``None`` if unknown.
    ``check_connections`` checks what needs Airflow's connections: ``[data.source]`` and ``[owner] notify``.

    Raises:
        StoreError: the store failed, or the status could not be written.
    """
    limits = limits or IntakeLimits.from_environment()
    try:
        check_key(layout.incoming_file(team, job, layout.STATUS_JSON))
    except StoreError as error:
        logger.warning("cannot write the status of a submission: %s", error)
        return _rejected([ValidationIssue(str(error), hint="upload it to incoming/<team>/<job>/")])
    for _ in range(_ATTEMPTS):
        submission = _find(store, team, job)
        outcome = (
            _answer(store, submission, links or {}, limits, memory, gpus, check_connections)
            if submission
            else _gone(store, team, job)
        )
        # Another intake may have seen a newer version and may have written its status first.
        if _fingerprint(_find(store, team, job)) == _fingerprint(submission):
            break
    return outcome


def report_check(store: Store, team: str, job: str) -> None:
    """Write into the status that the submission is being checked, unless it has been.

    Raises:
        StoreError: the status could not be written.
    """
    if submission := _find(store, team, job):
        report_checking(store, submission)


def report_failure(store: Store, team: str, job: str, error: Exception) -> Outcome:
    """Reject a submission because its check failed with another error than one in its files.

    Raises:
        StoreError: the status could not be written.
    """
    reason = str(error) if isinstance(error, DmlsError) else repr(error)
    hint = (
        "the file may be fine: it is checked again by itself, and at once if you upload it again; the log of "
        "dmls.intake has the cause"
    )
    issue = ValidationIssue(f"DMLS failed on this file: {reason}", hint)
    outcome = Outcome("rejected", str(issue), issues=(issue,))
    fingerprint = _fingerprint(_find(store, team, job))
    write_status(
        store, team, job, outcome.state, outcome.message, errors=outcome.issues, fingerprint=fingerprint
    )
    return outcome


def _find(store: Store, team: str, job: str) -> Submission | None:
    listing = store.list(layout.incoming_folder(team, job))
    submissions = [entry for entry in group_submissions(listing) if (entry.team, entry.job) == (team, job)]
    return submissions[0] if submissions else None


def _fingerprint(submission: Submission | None) -> str:
    return submission.fingerprint if submission else ""


def _answer(
    store: Store,
    submission: Submission,
    links: Mapping[str, str],
    limits: IntakeLimits,
    memory: str | None,
    gpus: int | None,
    check_connections: CheckConnections | None,
) -> Outcome:
    team, job = submission.team, submission.job
    before = read_status(store, team, job)
    if before and not submission.same_content(before.fingerprint):
        before = None
    environment = hash_environment(limits, memory, gpus)
    if before and (answer := _standing_answer(store, submission, before, environment)):
        return answer
    try:
        outcome = _decide(store, submission, limits, memory, gpus, check_connections)
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
        # The run has started or ended already: its state stays.
        message = now.message.removesuffix(f"{NOTE}{CHECKING}")
        current_status = Outcome(now.state, message, record, now.errors, now.notes)
        outcome, links = current_status, {**now.links, **links}
        run = now.run
    status = write_status(
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
        notes=outcome.notes,
        environment="" if outcome.state != "rejected" or outcome.outside else environment,
    )
    # One of an earlier release has no time at its end.
    if not (before and submission.fingerprint.startswith(before.fingerprint)):
        return outcome
    unchanged = (before.state, before.message, before.errors) == (status.state, status.message, status.errors)
    return replace(outcome, unchanged=unchanged)


def _standing_answer(
    store: Store, submission: Submission, before: Status, environment: str
) -> Outcome | None:
    """Return the answer ``before`` to the same files; ``None`` if they are to be checked again."""
    team, job, fingerprint = submission.team, submission.job, submission.fingerprint
    if before.state == "rejected" and (before.fingerprint, before.environment) != (fingerprint, environment):
        return None
    record = None if submission.issues else Registry(store).job(team, job)
    if not record and before.run_key is not None:
        return None  # the record was deleted
    if before.fingerprint != fingerprint:
        renew_status(store, team, job, fingerprint)
    current = record if record and record.run_key == before.run_key else None
    return Outcome(before.state, before.message, current, before.errors, before.notes, unchanged=True)


def _decide(
    store: Store,
    submission: Submission,
    limits: IntakeLimits,
    memory: str | None,
    gpus: int | None,
    check_connections: CheckConnections | None,
) -> Outcome:
    """Return the outcome of a submission; raise ``UserError`` to reject it."""
    if submission.issues:
        return _rejected(submission.issues)
    if submission.spec is None:
        return _without_spec(store, submission)
    try:
        spec = _load(store, submission.spec)
        if gpus == 0 and spec.resources.engine == "gpu":
            return _rejected([_NO_GPU])
        resources = spec.resources.model_copy(update={"memory": spec.resources.memory or memory})
        limited = spec.model_copy(update={"resources": resources})
        data: list[ObjectInfo] = []
        findings = check_connections(submission.team, spec) if check_connections else Findings()
        if spec.data.source and not check_connections:
            findings = Findings((_SOURCELESS,))
        if not spec.data.source:
            data, in_files = check_data(store, choose_data(submission, spec), limited, limits)
            findings = replace(in_files, notes=(*in_files.notes, *findings.notes))
    except ObjectMissingError:
        return Outcome("waiting", "A file was deleted during the check; upload it again.")
    if findings.issues:
        return replace(_rejected(findings.issues), outside=spec.data.source is not None)
    if not data and not spec.data.source:
        expected = spec.data.path or "<name>.csv"
        message = f"Waiting for data: upload {expected} next to {layout.SPEC_FILE}."
        if not spec.partitions and any(is_nested(submission, file) for file in submission.files):
            message += ' Files in subfolders are read only as partitions: [data] path = "data/{date}.csv".'
        return Outcome("waiting", message)
    # If each run selects its own data, new data is not a new version of the job.
    pinned = [] if spec.chosen_by_run else data
    record = Registry(store).accept(
        spec, submission.team, submission.job, pinned, datetime.now(UTC), submission.fingerprint
    )
    note = sample_note(data, spec, limits)
    message = f"{_accepted(store, spec, record)} {note}".strip()
    return Outcome("accepted", message, record, notes=findings.notes)


def _load(store: Store, file: ObjectInfo) -> Spec:
    """Read the spec; raise ``SpecError`` with all of its errors."""
    from dmls_core.models import load_spec
    from dmls_core.settings import SpecLimits

    limits = SpecLimits.from_environment()
    # One byte beyond the limit is enough for the parser to reject it.
    content, _ = store.read(file.key, limit=limits.bytes + 1)
    return load_spec(content, layout.SPEC_FILE, limits=limits)


def _without_spec(store: Store, submission: Submission) -> Outcome:
    record = _retire(store, submission.team, submission.job)
    names = [file_name(file) for file in submission.files]
    others = [name for name in names if name.lower().endswith(".toml")]
    if others:
        message = f"Waiting for the spec: rename {others[0]} to {layout.SPEC_FILE}."
    else:
        message = f"Waiting for the spec: upload {layout.SPEC_FILE} next to {', '.join(names[:3])}."
    return Outcome("waiting", (_RETIRED + message) if record else message, record)


def _gone(store: Store, team: str, job: str) -> Outcome:
    """Retire a job whose files were deleted; update its status only if it has one."""
    record = _retire(store, team, job)
    message = (_RETIRED if record else "") + f"Waiting for {layout.SPEC_FILE} and its data."
    if read_status(store, team, job):
        write_status(store, team, job, "waiting", message)
    return Outcome("waiting", message, record)


def _retire(store: Store, team: str, job: str) -> JobRecord | None:
    """Retire a job and return its record; None if it is not active."""
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
    named = spec.data.source.label if spec.data.source else spec.data.path
    files = ", ".join(item.key.rpartition("/")[2] for item in record.data) or named or "its data"
    trials = at_most(spec.n_trials, "trial")
    what = f"Accepted as version {record.version}: {models}, {trials}, on {files}."
    if store.head(layout.run_folder(record.team, record.name, record.run_key) + layout.RESULT):
        return f"{what} This spec was already trained on this data; its result is used."
    if spec.schedule and spec.schedule.cron:
        return f"{what} Training starts now, and then by the schedule {spec.schedule.cron}."
    return f"{what} Training starts automatically."
