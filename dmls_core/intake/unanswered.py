"""Submissions to hand to the intake again: without an answer yet, or rejected for what may have changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dmls_core.errors import StoreError
from dmls_core.intake.status_store import read_status
from dmls_core.intake.submissions import Submission
from dmls_core.store import ObjectInfo, Store, check_key, layout

Folder = tuple[str, str]
"""Team and job of a submission."""

_READS = 20
"""Statuses that are read after a listing, to know which are rejections."""


def statuses_in(listing: Iterable[ObjectInfo]) -> dict[str, ObjectInfo]:
    """Return the statuses of submissions by key."""
    return {info.key: info for info in listing if info.key.endswith(f"/{layout.STATUS_JSON}")}


def unanswered(
    store: Store, submissions: Iterable[Submission], statuses: Mapping[str, ObjectInfo]
) -> list[Folder]:
    """Return the submissions whose status, by key, is older than their files, and about other files."""
    folders = []
    for submission in submissions:
        status = statuses.get(layout.incoming_file(submission.team, submission.job, layout.STATUS_JSON))
        files = [*submission.files, *filter(None, [submission.spec])]
        if status is not None and status.modified >= max(file.modified for file in files):
            continue
        folder = submission.team, submission.job
        if _has_status(folder) and not (status and _is_answered(store, folder, submission.fingerprint)):
            folders.append(folder)
    return folders


def without_answer(
    store: Store, folders: Iterable[Folder], fingerprints: Mapping[Folder, str]
) -> list[Folder]:
    """Return the folders whose answers in the store are not about the files with these fingerprints."""
    return [folder for folder in folders if not _is_answered(store, folder, fingerprints[folder])]


class RejectedSubmissions:
    """The rejected ones among the submissions; of each new or changed one, the answer is read once.

    Attributes:
        unanswered: those whose status was read and is no answer, but may say that they are being checked.
    """

    def __init__(self) -> None:
        self._unread: dict[Folder, str] = {}
        self._rejected: set[Folder] = set()
        self.unanswered: set[Folder] = set()

    def update(
        self, store: Store, changed: Iterable[Folder], fingerprints: Mapping[Folder, str]
    ) -> set[Folder]:
        """Return the rejected submissions; ``changed`` are those that appeared, changed or disappeared."""
        for folder in changed:
            self._rejected.discard(folder)
            self.unanswered.discard(folder)
            self._unread.pop(folder, None)
            if folder in fingerprints and _has_status(folder):
                self._unread[folder] = fingerprints[folder]
        for folder in list(self._unread)[:_READS]:
            status = read_status(store, *folder)
            fingerprint = self._unread.pop(folder)
            self.unanswered.discard(folder)
            if status is None or status.fingerprint != fingerprint:
                self._unread[folder] = fingerprint  # the answer is still to come: it is read after others
                self.unanswered.add(folder)
            elif status.state == "rejected":
                self._rejected.add(folder)
        return set(self._rejected)

    def still_rejected(self, store: Store, folders: Collection[Folder]) -> list[Folder]:
        """Return those of the folders whose status is still a rejection, and forget the others."""
        for folder in folders:
            status = read_status(store, *folder)
            if status is None or status.state != "rejected":
                self._rejected.discard(folder)
        return [folder for folder in folders if folder in self._rejected]


class Waits:
    """When folders are due: after ``first`` seconds, then less and less often, up to ``longest``."""

    def __init__(self, first: float, longest: float) -> None:
        self._first, self._longest = first, longest
        self._waits: dict[Folder, tuple[float, float]] = {}  # when it is due, the wait after that

    def due(self, folders: Iterable[Folder], changed: Collection[Folder], now: float) -> list[Folder]:
        """Return the folders that are due at ``now``; the waits of ``changed`` ones begin anew."""
        first = now + self._first, 2 * self._first
        self._waits = {
            folder: first if folder in changed else self._waits.get(folder, first) for folder in folders
        }
        due = [folder for folder, (at, _) in self._waits.items() if at <= now]
        for folder in due:
            wait = self._waits[folder][1]
            self._waits[folder] = now + wait, min(2 * wait, self._longest)
        return due


def _has_status(folder: Folder) -> bool:
    """Return whether a status can be written for a folder, whose names may be invalid."""
    try:
        check_key(layout.incoming_file(*folder, layout.STATUS_JSON))
    except StoreError:
        return False
    return True


def _is_answered(store: Store, folder: Folder, fingerprint: str) -> bool:
    status = read_status(store, *folder)
    return status is not None and status.fingerprint == fingerprint
