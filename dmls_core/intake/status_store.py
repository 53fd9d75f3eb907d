"""Read and write the status next to a submission: ``_status.json`` and ``_status.md``."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dmls_core.errors import ConflictError, ObjectMissingError, ValidationIssue
from dmls_core.intake.status import CHECKING, State, Status, as_issue, status_page
from dmls_core.intake.submissions import Submission
from dmls_core.store import Registry, ServedModel, Store, is_key, layout, read_served

_MAX_BYTES = 1 << 20
"""Size of the largest status that is read: users can write the file, too."""

_ATTEMPTS = 8

_ERROR_BYTES = _MAX_BYTES // 2
"""Size of the errors in a status, which keeps it below ``_MAX_BYTES``."""

_MAX_TEXT = 5_000
"""Characters of a text in a status: a column name may be very long."""

NOTE = "; later: "
"""Separates a message from the note after it."""


def read_status(store: Store, team: str, job: str) -> Status | None:
    """Return the status of a submission; ``None`` if it has none or an invalid one."""
    return _read(store, team, job)[0]


def write_status(
    store: Store,
    team: str,
    job: str,
    state: State,
    message: str,
    *,
    errors: Iterable[ValidationIssue | Mapping[str, Any]] = (),
    run_key: str | None = None,
    run: str = "",
    links: Mapping[str, str] | None = None,
    fingerprint: str = "",
    notes: Iterable[str] = (),
    environment: str = "",
) -> Status:
    """Write the status of a submission unless it is unchanged; raise ``StoreError`` if this fails."""
    status = Status(
        state,
        _truncated(message),
        f"{team}/{job}".strip("/"),
        _bounded(errors),
        run_key,
        links or {},
        fingerprint,
        run=run,
        notes=tuple(map(_truncated, notes)),
        environment=environment,
    )
    return _write(store, team, job, status, _read(store, team, job)[0])


def renew_status(store: Store, team: str, job: str, fingerprint: str) -> None:
    """Write into the status that it is also about the same files uploaded again."""
    _change(
        store,
        team,
        job,
        lambda before: replace(before, fingerprint=fingerprint, updated="") if before else None,
    )


def update_run_status(
    store: Store,
    team: str,
    job: str,
    run_key: str,
    state: State,
    message: str,
    *,
    errors: Iterable[ValidationIssue | Mapping[str, Any]] = (),
    links: Mapping[str, str] | None = None,
    run: str = "",
    unless: Collection[State] = (),
) -> bool:
    """Update the status with the progress of a run; return False if nothing was written.

    ``run_key`` is the key of the job's accepted version; ``run`` is that of a run that selected its data.

    Nothing is written if the job is retired or has another run, or if a newer version was rejected or is
    incomplete: its errors must stay visible. Nor is a state of ``unless`` replaced. Links of the same run are
    merged.

    Raises:
        StoreError: the status could not be written.
    """
    record = Registry(store).job(team, job)
    if record is None or record.state == "retired" or record.run_key != run_key:
        return False

    def updated(before: Status | None) -> Status | None:
        if before and before.state in {"waiting", "rejected"} and before.fingerprint != record.fingerprint:
            return None
        if before and before.state in unless:
            return None
        same = before if before and before.run_key == run_key else None
        earlier = same.links if same and same.run == run else {}
        return Status(
            state,
            _truncated(message),
            f"{team}/{job}",
            _bounded(errors),
            run_key,
            {**earlier, **(links or {})},
            # Later files with the same spec and data are no new version, and this status is about them.
            same.fingerprint if same else record.fingerprint,
            run=run,
            notes=same.notes if same else (),
        )

    return _change(store, team, job, updated)


def report_checking(store: Store, submission: Submission) -> bool:
    """Write that a submission is being checked; return False if the status is about its files.

    The status of earlier files stays, with a note: the check may show that they are no new version.
    """
    team, job = submission.team, submission.job

    def checking(before: Status | None) -> Status | None:
        if before is None:
            return Status("waiting", CHECKING, f"{team}/{job}".strip("/"))
        # Files that were rejected are checked again if they are uploaded again.
        is_answered = before.fingerprint == submission.fingerprint or (
            before.state != "rejected" and submission.same_content(before.fingerprint)
        )
        if is_answered or before.message.endswith(CHECKING):
            return None
        message = f"{before.message.partition(NOTE)[0]}{NOTE}{CHECKING}"
        return replace(before, message=_truncated(message), updated="")

    return _change(store, team, job, checking)


def add_note(store: Store, team: str, job: str, note: str, links: Mapping[str, str]) -> bool:
    """Add a sentence to the message of a status, for example about drift; return False if there is no status.

    A note replaces the previous one, and the next update of a run removes it. ``links`` (name -> URL) are
    added to those of the status.

    Raises:
        StoreError: the status could not be written.
    """

    def noted(before: Status | None) -> Status | None:
        if before is None:
            return None
        message = _truncated(f"{before.message.partition(NOTE)[0]}{NOTE}{note}")
        return replace(before, message=message, links={**before.links, **links}, updated="")

    return _change(store, team, job, noted)


def remove_note(store: Store, team: str, job: str, note: str) -> bool:
    """Remove a note from the message of a status if it is still there; return False if it is not."""

    def without(before: Status | None) -> Status | None:
        if before is None or not before.message.endswith(f"{NOTE}{note}"):
            return None
        return replace(before, message=before.message.removesuffix(f"{NOTE}{note}"), updated="")

    return _change(store, team, job, without)


def report_served(store: Store, team: str, job: str, served: ServedModel) -> bool:
    """Write into the status that an earlier version is served again; return False if there is no status."""

    def updated(before: Status | None) -> Status | None:
        if before is None:
            return None
        if before.state not in ("deployed", "stopped"):
            return replace(before, updated="")
        back = f", instead of version {served.previous}" if served.previous else ""
        what = "rolled back" if served.previous else "served again"
        return replace(
            before,
            state="deployed",
            message=_truncated(f"{served.text}{back}: {what} by {served.by}"),
            updated="",
        )

    return _change(store, team, job, updated)


def report_stopped(store: Store, team: str, job: str, version: int | None, by: str) -> bool:
    """Write into the status that nothing is served any more; return False if there is no status."""

    def updated(before: Status | None) -> Status | None:
        if before is None:
            return None
        if before.state != "deployed":
            return replace(before, updated="")
        what = f"version {version}" if version else "the model"
        again = "`dmls rollback`, or the page of the job, serves it again"
        message = f"{what} is no longer served: stopped by {by}. {again}"
        return replace(before, state="stopped", message=_truncated(message), updated="")

    return _change(store, team, job, updated)


def _change(store: Store, team: str, job: str, changed: Callable[[Status | None], Status | None]) -> bool:
    """Change the status, again if another process changes it meanwhile; False if ``changed`` returns None."""
    for _ in range(_ATTEMPTS):
        before, etag = _read(store, team, job)
        status = changed(before)
        if status is None:
            return False
        try:
            _write(store, team, job, status, before, etag)
        except ConflictError:
            continue
        return True
    raise ConflictError(f"cannot update the status of {team}/{job}: other processes keep changing it")


def _bounded(errors: Iterable[ValidationIssue | Mapping[str, Any]]) -> tuple[ValidationIssue, ...]:
    """Return the errors that fit into a status, and the number of the others."""
    issues = [as_issue(error) for error in errors]
    shown: list[ValidationIssue] = []
    size = 0
    for issue in map(_shortened, issues):
        size += len(json.dumps(issue.as_json()))
        if size > _ERROR_BYTES:
            shown.append(ValidationIssue(f"and {len(issues) - len(shown):,} more issues"))
            break
        shown.append(issue)
    return tuple(shown)


def _shortened(issue: ValidationIssue) -> ValidationIssue:
    return replace(
        issue,
        message=_truncated(issue.message),
        hint=_truncated(issue.hint),
        file=_truncated(issue.file),
        key=_truncated(issue.key),
        found=_truncated(issue.found),
        expected=_truncated(issue.expected),
    )


def _truncated(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def _read(store: Store, team: str, job: str) -> tuple[Status | None, str]:
    """Return the status and its ETag; an invalid status counts as none."""
    key = layout.incoming_file(team, job, layout.STATUS_JSON)
    if not is_key(key):  # of a folder that another client made
        return None, ""
    try:
        content, info = store.read(key, limit=_MAX_BYTES)
    except ObjectMissingError:
        return None, ""
    try:
        return Status.from_json(json.loads(content)), info.etag
    except (ValueError, RecursionError):
        return None, info.etag


def _write(
    store: Store, team: str, job: str, status: Status, before: Status | None, etag: str | None = None
) -> Status:
    """Write both files; with an ETag (empty: no status) only if no other process wrote meanwhile."""
    served = read_served(store, team, job) if layout.is_name(team) and layout.is_name(job) else None
    status = replace(status, served=served.as_json() if served else None)
    if before and replace(before, updated="") == status:
        return before
    status = replace(status, updated=datetime.now(UTC).isoformat(timespec="seconds"))
    document = (json.dumps(status.as_json(), indent=2, ensure_ascii=False) + "\n").encode(errors="replace")
    key = layout.incoming_file(team, job, layout.STATUS_JSON)
    # The page first: after an interruption, the next call still finds the old JSON and writes both.
    _write_page(store, team, job, status)
    try:
        if etag is None:
            store.put(key, document)
        elif etag:
            store.replace(key, document, etag)
        else:
            store.create(key, document)
    except ConflictError:
        if current := _read(store, team, job)[0]:
            _write_page(store, team, job, current)
        raise
    return status


def _write_page(store: Store, team: str, job: str, status: Status) -> None:
    store.put(layout.incoming_file(team, job, layout.STATUS_MD), status_page(status).encode(errors="replace"))
