"""Find the submissions below ``incoming/``, and upload one."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TypeVar

from dmls_core.data.formats.names import (
    converted_endings,
    data_endings,
    is_data_name,
    naming_hint,
    plain_endings,
    prose_endings,
)
from dmls_core.errors import StoreError, SubmissionError, ValidationIssue
from dmls_core.store import ObjectInfo, Store, check_key, layout

_Named = TypeVar("_Named")


@dataclass(frozen=True, slots=True)
class Submission:
    """One folder below ``incoming/`` with a spec or data.

    Attributes:
        team: name of the team's folder; a valid name only if ``issues`` is empty.
        job: name of the job's folder, like ``team``; it contains slashes if the folder is too deep.
        files: all other files by name, including subfolders, without hidden files and the status files.
        issues: issues of its folder or names, for which it is rejected unread.
        fingerprint: changes whenever one of its files changes, or is uploaded again: a hash of their content,
            a dot and the time of the latest upload.
    """

    team: str
    job: str
    spec: ObjectInfo | None
    files: tuple[ObjectInfo, ...]
    issues: tuple[ValidationIssue, ...]
    fingerprint: str

    def same_content(self, fingerprint: str) -> bool:
        """Return whether a fingerprint, also one of an earlier release without a time, has this content."""
        return fingerprint.partition(".")[0] == self.fingerprint.partition(".")[0]


def find_submissions(store: Store) -> list[Submission]:
    """Return the submissions in the store, in order of team and job."""
    return group_submissions(store.list(layout.INCOMING))


def group_submissions(objects: Iterable[ObjectInfo]) -> list[Submission]:
    """Group a listing into submissions, in order of team and job.

    Keys are relative to the root; those not below ``incoming/`` are ignored, all others accepted.
    """
    folders: dict[tuple[str, str], dict[str, ObjectInfo]] = {}
    for file in objects:
        drop = layout.parse_incoming(file.key)
        if drop is None or layout.incoming_file(*drop) != file.key:
            continue  # an empty folder name at its end: nothing can be written next to it
        if drop.filename and not drop.filename.startswith((".", "_status.")):
            folders.setdefault((drop.team, drop.job), {})[drop.filename] = file
    _adopt_partitions(folders)
    return [
        _submission(team, job, files)
        for (team, job), files in sorted(folders.items())
        if any(name.lower().endswith(".toml") or is_data_name(name) for name in files)
    ]


class SubmissionListing:
    """The submissions in one listing after another; only the folders of jobs that changed are read again."""

    def __init__(self) -> None:
        self._jobs: dict[str, tuple[list[ObjectInfo], list[Submission]]] = {}

    def update(self, objects: Iterable[ObjectInfo]) -> list[Submission]:
        """Return what ``group_submissions`` returns."""
        jobs: dict[str, list[ObjectInfo]] = {}
        for info in objects:
            folder = info.key.rpartition("/")[0].split("/", 3)
            jobs.setdefault("/".join(folder[:3]), []).append(info)
        previous = self._jobs
        self._jobs = {
            job: previous[job]
            if job in previous and previous[job][0] == files
            else (files, group_submissions(files))
            for job, files in jobs.items()
        }
        found_ones = [one for _, submissions in self._jobs.values() for one in submissions]
        return sorted(found_ones, key=lambda one: (one.team, one.job))


def _adopt_partitions(folders: dict[tuple[str, str], dict[str, ObjectInfo]]) -> None:
    """Add the files in subfolders of a job, which are partitions, to the job.

    A subfolder with its own spec is a misplaced submission.
    """
    for (team, job), files in list(folders.items()):
        name, deeper, rest = job.partition("/")
        if deeper and layout.SPEC_FILE not in files and layout.is_name(team) and layout.is_name(name):
            job_files = folders.setdefault((team, name), {})
            job_files |= {f"{rest}/{filename}": file for filename, file in files.items()}
            del folders[team, job]


def file_name(file: ObjectInfo) -> str:
    """Return an object's name within its folder."""
    return file.key.rpartition("/")[2]


def is_nested(submission: Submission, file: ObjectInfo) -> bool:
    """Return whether a file is in a subfolder of the submission's folder."""
    return "/" in file.key.removeprefix(layout.incoming_folder(submission.team, submission.job))


def select_data(files: Iterable[_Named], name: Callable[[_Named], str]) -> list[_Named]:
    """Return the files that are data by their names: if some are read as they are, only those.

    A ``.txt`` is data only if there is no other data: it may be a note.
    """
    files = list(files)
    for endings in (plain_endings(), converted_endings(), prose_endings()):
        if chosen := [file for file in files if name(file).lower().endswith(endings)]:
            return chosen
    return []


def _submission(team: str, job: str, files: dict[str, ObjectInfo]) -> Submission:
    facts = sorted((name, info.etag, info.size) for name, info in files.items())
    content = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    uploaded = max(info.modified for info in files.values())
    return Submission(
        team=team,
        job=job,
        spec=files.get(layout.SPEC_FILE),
        files=tuple(files[name] for name in sorted(files) if name != layout.SPEC_FILE),
        issues=(*_misplaced(team, job), *_unreadable(files)),
        fingerprint=f"{content}.{uploaded.astimezone(UTC):%Y%m%dT%H%M%S%f}",
    )


def _unreadable(files: dict[str, ObjectInfo]) -> list[ValidationIssue]:
    issues = []
    for name, file in sorted(files.items()):
        try:
            check_key(file.key)
        except StoreError:
            issues.append(
                ValidationIssue(
                    f"a file cannot have the name {name!r}",
                    hint="use a name without backslashes and control characters",
                    file=name,
                )
            )
    return issues


def _misplaced(team: str, job: str) -> list[ValidationIssue]:
    if not team or not job:
        return [
            ValidationIssue(
                "the files are directly in " + (f"the folder of team {team!r}" if team else "'incoming/'"),
                hint="create a folder for the job, and upload spec.toml and its data to it",
                found=layout.incoming_folder(team, job),
                expected="incoming/<team>/<job>/",
            )
        ]
    name, deeper, _ = job.partition("/")
    if deeper and layout.is_name(team) and layout.is_name(name):
        return [
            ValidationIssue(
                "the files are in a subfolder of the job's folder, which is not read",
                hint=f"move them to {layout.incoming_folder(team, name)}",
                found=layout.incoming_folder(team, job),
                expected="incoming/<team>/<job>/",
            )
        ]
    return [
        layout.name_issue(resource, text)
        for resource, text in (("team", team), ("job", job))
        if not layout.is_name(text)
    ]


def submit(
    store: Store, spec_path: Path, data_paths: Sequence[Path], team: str, name: str
) -> list[ObjectInfo]:
    """Upload the data and then the spec, so that the intake never finds the spec without its data.

    ``data_paths`` are files and folders, see ``named_files``. Return the written objects, the spec last.

    Raises:
        SubmissionError: a name is invalid or a file is missing; nothing was uploaded.
        StoreError: the upload failed.
    """
    layout.check_name("team", team)
    layout.check_name("job", name)
    files = named_files(data_paths)
    issues = [*check_files_exist([spec_path]), *(issue for _, path in files for issue in _check(path))]
    names = [file_name for file_name, _ in files]
    issues += [
        ValidationIssue("two data files have the same name", hint="rename one", file=double)
        for double in sorted(name for name, count in Counter(names).items() if count > 1)
    ]
    if issues:
        raise SubmissionError(issues)
    written = [store.upload(layout.incoming_file(team, name, file_name), path) for file_name, path in files]
    return [*written, store.upload(layout.incoming_file(team, name, layout.SPEC_FILE), spec_path)]


def named_files(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return files with their names below the job's folder; a folder stands for all data files below it.

    Their names start with its name: ``data/2026-01-05.csv``. Hidden files and other files are ignored.

    Raises:
        SubmissionError: a folder has no data file.
    """
    named = []
    for path in paths:
        if not path.is_dir():
            named.append((path.name, path))
            continue
        base = path.absolute().parent
        visible = [file for file in sorted(path.absolute().rglob("*")) if _is_visible(file, base)]
        files = select_data(visible, lambda file: file.name)
        if not files:
            hint = f"add files with names that end in {', '.join(data_endings())}"
            raise SubmissionError(ValidationIssue("the folder has no data file", hint=hint, file=str(path)))
        named += [(file.relative_to(base).as_posix(), file) for file in files]
    return named


def _is_visible(file: Path, base: Path) -> bool:
    return not any(part.startswith(".") for part in file.relative_to(base).parts) and file.is_file()


def check_files_exist(paths: Iterable[Path]) -> list[ValidationIssue]:
    """Return the issues of paths that lead to no file, or to a pipe or a device, which are read only once."""
    issues = []
    for path in paths:
        if not path.exists():
            issues.append(ValidationIssue("the file does not exist", hint="correct the path", file=str(path)))
        elif not path.is_file():
            hint = "write its content to a file, and name that"
            issues.append(ValidationIssue("this is a pipe or a device", hint=hint, file=str(path)))
    return issues


def _check(path: Path) -> list[ValidationIssue]:
    return check_files_exist([path]) or check_data_name(path.name, str(path))


def check_data_name(name: str, shown: str = "") -> list[ValidationIssue]:
    """Return the issues of a data file's name without folders; ``shown`` replaces it in messages."""
    if name.startswith((".", "_status.")) or not name.isprintable() or "/" in name or "\\" in name:
        return [ValidationIssue("a data file cannot have this name", hint="rename it", file=shown or name)]
    if not is_data_name(name):
        return [ValidationIssue("this is not a data file", hint=naming_hint(name), file=shown or name)]
    return []
