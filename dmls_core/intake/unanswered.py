"""Submissions that the intake has not answered yet, by a listing of their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dmls_core.errors import StoreError
from dmls_core.intake.status_store import read_status
from dmls_core.intake.submissions import Submission
from dmls_core.store import ObjectInfo, Store, check_key, layout


def statuses_in(listing: Iterable[ObjectInfo]) -> dict[str, ObjectInfo]:
    """Return the statuses of submissions by key."""
    return {info.key: info for info in listing if info.key.endswith(f"/{layout.STATUS_JSON}")}


def unanswered(
    store: Store,
    submissions: Iterable[Submission],
    statuses: Mapping[str, ObjectInfo],
    uploaded_again: set[str],
) -> list[tuple[str, str]]:
    """Return the submissions whose status is older than their files, and about other files.

    ``statuses`` are by key. ``uploaded_again`` collects those whose files were uploaded again unchanged.
    """
    folders = []
    for submission in submissions:
        key = layout.incoming_file(submission.team, submission.job, layout.STATUS_JSON)
        files = [*submission.files, *filter(None, [submission.spec])]
        status = statuses.get(key)
        current = status is not None and status.modified >= max(file.modified for file in files)
        content = f"{key} {submission.fingerprint}"
        if current or (status and content in uploaded_again):
            continue
        try:
            check_key(key)
        except StoreError:
            continue  # no status can be written there
        answer = read_status(store, submission.team, submission.job) if status else None
        if status and answer and answer.fingerprint == submission.fingerprint:
            uploaded_again.add(content)
        else:
            folders.append((submission.team, submission.job))
    return folders


def without_answer(
    store: Store, folders: Iterable[tuple[str, str]], fingerprints: Mapping[tuple[str, str], str]
) -> list[tuple[str, str]]:
    """Return the folders whose answers in the store are not about the files with these fingerprints."""
    answers = {folder: read_status(store, *folder) for folder in folders}
    return [one for one, answer in answers.items() if not answer or answer.fingerprint != fingerprints[one]]
