"""Select the data files of a submission or an interval, and check the beginning of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from dmls_core.data.formats.detection import explain
from dmls_core.data.formats.names import file_format, format_of, formats, needs_conversion
from dmls_core.errors import SubmissionError, ValidationIssue
from dmls_core.intake.column_check import Files, Findings, check_columns
from dmls_core.intake.csv_check import check_csv_head
from dmls_core.intake.submissions import (
    Submission,
    file_name,
    group_submissions,
    is_nested,
    named_files,
    select_data,
)
from dmls_core.settings import IntakeLimits
from dmls_core.store import ObjectInfo, Store, is_key, layout

if TYPE_CHECKING:
    from dmls_core.spec import Spec
    from dmls_core.spec.partitions import PartitionPattern


def choose_data(submission: Submission, spec: Spec) -> list[ObjectInfo]:
    """Return the data files that the spec selects, by name; none if they are missing.

    Of partitions, these are the files of the latest period.

    Raises:
        SubmissionError: the selection or the format is ambiguous.
    """
    path = spec.data.path
    candidates = [file for file in submission.files if not is_nested(submission, file) and is_key(file.key)]
    if spec.partitions:
        folder = layout.incoming_folder(submission.team, submission.job)
        partitions = find_partitions(submission.files, folder, spec.partitions, spec.timezone)
        chosen = [partition.file for partition in _newest_partition(partitions)]
    elif path is None:
        data = [file for file in candidates if not spec.means_labels(file_name(file))]
        chosen = select_data(data, file_name)
        if len(chosen) > 1:
            names = ", ".join(map(file_name, chosen))
            raise SubmissionError(
                ValidationIssue(
                    f"there are {len(chosen)} data files, and the spec does not name one",
                    hint='name one in the spec, such as [data] path = "'
                    + file_name(max(chosen, key=lambda file: file.modified))
                    + '", or delete the others',
                    file=layout.SPEC_FILE,
                    key="data.path",
                    found=names if len(names) <= 200 else f"{names[:200]}...",
                )
            )
    else:
        if "/" in path or "\\" in path or path in {".", ".."}:
            raise SubmissionError(
                ValidationIssue(
                    "the data must be in the same folder as the spec",
                    hint="name a file in this folder, without slashes; only partitions may be in subfolders: "
                    "data/{date}.csv",
                    file=layout.SPEC_FILE,
                    key="data.path",
                    found=path,
                )
            )
        chosen = [file for file in candidates if fnmatchcase(file_name(file), path)]
    names_of_formats = {_data_format(file, spec) for file in chosen}
    if len(names_of_formats) > 1 or None in names_of_formats:
        raise SubmissionError(
            ValidationIssue(
                "the names of the data files do not show their format",
                hint=f"set [data] format to one of {', '.join(one.name for one in formats())}",
                file=layout.SPEC_FILE,
                key="data.format",
                found=", ".join(map(file_name, chosen))[:200],
            )
        )
    return chosen


def check_folder(store: Store, spec: Spec, team: str, job: str, paths: Sequence[Path]) -> None:
    """Raise ``SubmissionError`` if it is ambiguous what the spec selects once files are uploaded to a job.

    Files of earlier uploads stay in its folder. ``paths`` are as those of ``submit``. A name that is not
    valid raises it, too.
    """
    layout.check_name("team", team)
    layout.check_name("job", job)
    folder, now = layout.incoming_folder(team, job), datetime.now(UTC)
    uploaded = [folder + name for name, _ in named_files(paths)]
    earlier = [info for info in store.list(folder) if info.key not in uploaded]
    files = [*earlier, *(ObjectInfo(key, 0, "", now) for key in uploaded)]
    for submission in group_submissions(files):
        if (submission.team, submission.job) != (team, job):
            continue
        try:
            choose_data(submission, spec)
        except SubmissionError as error:
            where = f"in {folder}, where earlier files stay, "
            issues = [replace(issue, message=where + issue.message) for issue in error.issues]
            raise SubmissionError(issues) from None


def check_data(
    store: Files, chosen: list[ObjectInfo], spec: Spec, limits: IntakeLimits
) -> tuple[list[ObjectInfo], Findings]:
    """Check data files, of a large one a sample; return the files as they are now, and the findings.

    Raises:
        ObjectMissingError: a file no longer exists.
    """
    total = sum(file.size for file in chosen)
    if total > limits.data_bytes:
        issue = ValidationIssue(
            "the data is too large",
            hint="upload less, or ask the platform team to raise the limit",
            file=file_name(chosen[0]),
            found=f"{total:,} bytes",
            expected=f"at most {limits.data_bytes:,} bytes",
        )
        return chosen, Findings((issue,))
    current: list[ObjectInfo] = []
    issues: list[ValidationIssue] = []
    for file in chosen:
        head, info = store.read(file.key, limit=limits.head_bytes)
        current.append(info)
        name = file_name(file)
        data_file_format = file_format(name, spec.data.format)
        if not data_file_format.is_text:
            issues += data_file_format.check(name, head)
        elif not needs_conversion(name, spec.data):
            complete = len(head) >= info.size
            wrong = check_csv_head(name, head, spec, complete=complete, max_columns=limits.columns)
            issues += explain(name, wrong, head, spec.data.model_dump())
    if not issues and current:
        name = _data_format(chosen[0], spec) or "csv"
        return current, check_columns(store, current, name, spec, limits)
    return current, Findings(tuple(issues))


def _data_format(file: ObjectInfo, spec: Spec) -> str | None:
    """Return the format of a data file by the spec, else by its name; ``None`` if unknown."""
    if spec.data.format:
        return spec.data.format
    return format_of(file.key)


@dataclass(frozen=True, slots=True)
class Partition:
    """A file with the data of one period, in UTC; ``end`` is excluded."""

    file: ObjectInfo
    start: datetime
    end: datetime


def find_partitions(
    objects: Iterable[ObjectInfo], folder: str, pattern: PartitionPattern, timezone: str
) -> list[Partition]:
    """Return the files in ``folder`` (with a slash at its end) that match ``[data] path``, by time and name.

    ``timezone`` is that of the dates in names. Admission names files whose keys are invalid; they are left
    out here. Without a ``folder``, the objects are those of a source, which has its own rules.
    """
    zone = ZoneInfo(timezone)
    partitions = []
    for info in objects:
        period = pattern.period(info.key.removeprefix(folder), zone)
        if info.key.startswith(folder) and period and (not folder or is_key(info.key)):
            partitions.append(Partition(info, *period))
    return sorted(partitions, key=lambda partition: (partition.start, partition.file.key))


def partitions_between(
    partitions: Iterable[Partition], start: datetime | None, end: datetime
) -> list[Partition]:
    """Return the partitions that end after ``start`` and no later than ``end``.

    So consecutive intervals share no partition, and no interval gets later rows.
    """
    return [one for one in partitions if (start is None or start < one.end) and one.end <= end]


def _newest_partition(partitions: list[Partition]) -> list[Partition]:
    """Return the files of the latest period."""
    return [one for one in partitions if one.start == partitions[-1].start] if partitions else []
