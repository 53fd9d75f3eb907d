"""The answer to the user beside what was dropped: ``_status.json`` and ``_status.md``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dmls_core.errors import ConflictError, ObjectMissingError, ValidationIssue
from dmls_core.intake.status import State, Status, as_issue
from dmls_core.intake.status_page import status_page
from dmls_core.store import Registry, Store, layout

MAX_BYTES = 1 << 20
"""Of a status that is read back: users may write where it lies."""

ATTEMPTS = 8

ERROR_BYTES = MAX_BYTES // 2
"""Of the errors of a status that is written, so that it can be read back."""

MAX_TEXT = 5_000
"""Characters of one text of a status: a column's name may be as long as a file's beginning."""

NOTE = "; later: "
"""Stands between an answer and the note behind it."""


def read_status(store: Store, team: str, job: str) -> Status | None:
    """Return the answer to a drop; ``None`` where there is none, or none that can be understood."""
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
) -> Status:
    """Answer a drop, whatever was answered before; what already says the same is left untouched.

    Raises:
        StoreError: the answer could not be written.
    """
    status = Status(
        state,
        _cut(message),
        f"{team}/{job}".strip("/"),
        _bounded(errors),
        run_key,
        links or {},
        fingerprint,
        run=run,
    )
    return _write(store, team, job, status, _read(store, team, job)[0])


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
) -> bool:
    """Tell the user how a run goes, unless the drop has moved on.

    ``run_key`` is that of the job's accepted version; ``run`` is the run's own where it chose its data.

    Nothing is written when the job's record is of another run or retired, or when the last answer is to
    a newer drop that was not accepted: its errors must stay in sight. Links of the same run add up.

    Returns:
        Whether the status now says this.

    Raises:
        StoreError: the answer could not be written.
    """
    record = Registry(store).job(team, job)
    if record is None or record.state == "retired" or record.run_key != run_key:
        return False
    for _ in range(ATTEMPTS):
        before, etag = _read(store, team, job)
        if before and before.state in {"waiting", "rejected"} and before.fingerprint != record.fingerprint:
            return False
        earlier = before.links if before and (before.run_key, before.run) == (run_key, run) else {}
        status = Status(
            state,
            _cut(message),
            f"{team}/{job}",
            _bounded(errors),
            run_key,
            {**earlier, **(links or {})},
            record.fingerprint,
            run=run,
        )
        try:
            _write(store, team, job, status, before, etag)
        except ConflictError:
            continue
        return True
    raise ConflictError(f"cannot tell how the run of {team}/{job} goes: others keep changing its status")


def add_note(store: Store, team: str, job: str, note: str, links: Mapping[str, str]) -> bool:
    """Add to the answer, behind what it says of the run, something that was found out later.

    A note replaces the one before; the next answer of a run takes it away.

    Args:
        store: holds the answer.
        team: of the job.
        job: its name.
        note: a sentence.
        links: name -> address, of pages about it.

    Returns:
        Whether it was added: only an answer that is there can have a note.

    Raises:
        StoreError: the answer could not be written.
    """
    for _ in range(ATTEMPTS):
        before, etag = _read(store, team, job)
        if before is None:
            return False
        message = _cut(f"{before.message.partition(NOTE)[0]}{NOTE}{note}")
        status = replace(before, message=message, links={**before.links, **links}, updated="")
        try:
            _write(store, team, job, status, before, etag)
        except ConflictError:
            continue
        return True
    raise ConflictError(f"cannot add to the answer to {team}/{job}: others keep changing it")


def _bounded(errors: Iterable[ValidationIssue | Mapping[str, Any]]) -> tuple[ValidationIssue, ...]:
    """Return as many errors as a status holds, and how many more there are."""
    found = [as_issue(error) for error in errors]
    kept: list[ValidationIssue] = []
    size = 0
    for issue in map(_short, found):
        size += len(json.dumps(issue.as_json()))
        if size > ERROR_BYTES:
            kept.append(ValidationIssue(f"and {len(found) - len(kept):,} more issues"))
            break
        kept.append(issue)
    return tuple(kept)


def _short(issue: ValidationIssue) -> ValidationIssue:
    return replace(
        issue,
        message=_cut(issue.message),
        hint=_cut(issue.hint),
        file=_cut(issue.file),
        key=_cut(issue.key),
        found=_cut(issue.found),
        expected=_cut(issue.expected),
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def _read(store: Store, team: str, job: str) -> tuple[Status | None, str]:
    """Return the status and its ETag; a status that cannot be understood counts as none."""
    try:
        content, info = store.read(layout.incoming_file(team, job, layout.STATUS_JSON), limit=MAX_BYTES)
    except ObjectMissingError:
        return None, ""
    try:
        return Status.from_json(json.loads(content)), info.etag
    except (ValueError, RecursionError):
        return None, info.etag


def _write(
    store: Store, team: str, job: str, status: Status, before: Status | None, etag: str | None = None
) -> Status:
    """Write both forms; given an ETag (empty: there was none) only if nobody else wrote meanwhile."""
    if before and replace(before, updated="") == status:
        return before
    status = replace(status, updated=datetime.now(UTC).isoformat(timespec="seconds"))
    document = (json.dumps(status.as_json(), indent=2, ensure_ascii=False) + "\n").encode(errors="replace")
    key = layout.incoming_file(team, job, layout.STATUS_JSON)
    # The page goes first: cut off in between, the next call still sees the old JSON and writes both.
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
