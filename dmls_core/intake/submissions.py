"""From a listing of ``incoming/`` to the submissions in it. Pure: no store is asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from dmls_core.errors import StoreError, ValidationIssue
from dmls_core.store import ObjectInfo, Store, check_key, layout

DATA_ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Submission:
    """One folder below ``incoming/`` that holds a spec or data.

    Attributes:
        team: as it was dropped; a fit name only where ``issues`` is empty.
        job: as it was dropped, like ``team``; holds slashes if the folder lies too deep.
        spec: the object ``spec.toml``.
        files: every other file, in order of names, those in folders below it among them; no hidden ones
            and none of DMLS's own answers.
        issues: what is wrong with the place or with names; reason enough to reject it unread.
        fingerprint: changes when any of its files does.
    """

    team: str
    job: str
    spec: ObjectInfo | None
    files: tuple[ObjectInfo, ...]
    issues: tuple[ValidationIssue, ...]
    fingerprint: str


def find_submissions(store: Store) -> list[Submission]:
    """Return the submissions that one listing shows, in order of team and job."""
    return group_submissions(store.list(layout.INCOMING))


def group_submissions(objects: Iterable[ObjectInfo]) -> list[Submission]:
    """Group a listing into submissions, in order of team and job; never fails, whatever the keys.

    Args:
        objects: with keys relative to the root; those not below ``incoming/`` are left out.
    """
    folders: dict[tuple[str, str], dict[str, ObjectInfo]] = {}
    for found in objects:
        drop = layout.parse_incoming(found.key)
        if drop is None or layout.incoming_file(*drop) != found.key:
            continue  # an empty folder name at its end: nothing can be written beside it
        if drop.filename and not drop.filename.startswith((".", "_status.")):
            folders.setdefault((drop.team, drop.job), {})[drop.filename] = found
    _take_up_partitions(folders)
    return [
        _submission(team, job, files)
        for (team, job), files in sorted(folders.items())
        if any(name.lower().endswith((".toml", *DATA_ENDINGS)) for name in files)
    ]


def _take_up_partitions(folders: dict[tuple[str, str], dict[str, ObjectInfo]]) -> None:
    """Count the files of folders below a job's own, which hold partitions, as the job's.

    A folder with a spec of its own is a submission in the wrong place.
    """
    for (team, job), files in list(folders.items()):
        name, deeper, rest = job.partition("/")
        if deeper and layout.SPEC_FILE not in files and layout.is_name(team) and layout.is_name(name):
            own = folders.setdefault((team, name), {})
            own |= {f"{rest}/{file}": found for file, found in files.items()}
            del folders[team, job]


def file_name(found: ObjectInfo) -> str:
    """Return an object's name within its folder."""
    return found.key.rpartition("/")[2]


def lies_deeper(submission: Submission, found: ObjectInfo) -> bool:
    """Say whether a file lies in a folder below the submission's own."""
    return "/" in found.key.removeprefix(layout.incoming_folder(submission.team, submission.job))


def is_data(found: ObjectInfo) -> bool:
    """Say whether a file's name shows that it holds data."""
    return found.key.lower().endswith(DATA_ENDINGS)


def _submission(team: str, job: str, files: dict[str, ObjectInfo]) -> Submission:
    facts = sorted((name, found.etag, found.size) for name, found in files.items())
    return Submission(
        team=team,
        job=job,
        spec=files.get(layout.SPEC_FILE),
        files=tuple(files[name] for name in sorted(files) if name != layout.SPEC_FILE),
        issues=(*_misplaced(team, job), *_unreadable(files)),
        fingerprint=hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16],
    )


def _unreadable(files: dict[str, ObjectInfo]) -> list[ValidationIssue]:
    issues = []
    for name, found in sorted(files.items()):
        try:
            check_key(found.key)
        except StoreError:
            issues.append(
                ValidationIssue(
                    f"a file cannot be named {name!r}",
                    hint="rename it, without backslashes and control characters",
                    file=name,
                )
            )
    return issues


def _misplaced(team: str, job: str) -> list[ValidationIssue]:
    if not team or not job:
        return [
            ValidationIssue(
                "the files lie directly in " + (f"the folder of team {team!r}" if team else "'incoming/'"),
                hint="make a folder for the job and drop spec.toml and its data there",
                found=layout.incoming_folder(team, job),
                expected="incoming/<team>/<job>/",
            )
        ]
    name, deeper, _ = job.partition("/")
    if deeper and layout.is_name(team) and layout.is_name(name):
        return [
            ValidationIssue(
                "the files lie in a folder below the job's own, where nothing is read",
                hint=f"move them up to {layout.incoming_folder(team, name)}",
                found=layout.incoming_folder(team, job),
                expected="incoming/<team>/<job>/",
            )
        ]
    return [
        layout.name_issue(kind, text)
        for kind, text in (("team", team), ("job", job))
        if not layout.is_name(text)
    ]
