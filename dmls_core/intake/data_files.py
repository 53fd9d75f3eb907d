"""Which of the dropped files hold the data, and do they look right?"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dmls_core.errors import SubmissionError, ValidationIssue
from dmls_core.intake.csv_head import check_csv_head
from dmls_core.intake.partitions import find_partitions, newest_partition
from dmls_core.intake.submissions import Submission, file_name, is_data, lies_deeper
from dmls_core.settings import IntakeLimits
from dmls_core.store import ObjectInfo, Store, layout

if TYPE_CHECKING:
    from dmls_core.spec import Spec

_PARQUET_MARK = b"PAR1"
_SMALLEST_PARQUET = 12


def choose_data(submission: Submission, spec: Spec) -> list[ObjectInfo]:
    """Return the data files that the spec means, in order of names; none if they are still to come.

    Of partitions these are the files of the latest period.

    Raises:
        SubmissionError: it is not clear which are meant, or what format they have.
    """
    path = spec.data.path
    beside = [found for found in submission.files if not lies_deeper(submission, found)]
    if spec.partitions:
        folder = layout.incoming_folder(submission.team, submission.job)
        partitions = find_partitions(submission.files, folder, spec.partitions, spec.timezone)
        chosen = [found.file for found in newest_partition(partitions)]
    elif path is None:
        chosen = [found for found in beside if is_data(found) and not spec.means_labels(file_name(found))]
        if len(chosen) > 1:
            names = ", ".join(map(file_name, chosen))
            raise SubmissionError(
                ValidationIssue(
                    f"there are {len(chosen)} data files and the spec does not say which to train on",
                    hint='name one in the spec, such as [data] path = "'
                    + file_name(chosen[0])
                    + '", or take the others away',
                    file=layout.SPEC_FILE,
                    key="data.path",
                    found=names if len(names) <= 200 else f"{names[:200]}...",
                )
            )
    else:
        if "/" in path or "\\" in path or path in {".", ".."}:
            raise SubmissionError(
                ValidationIssue(
                    "the data must lie beside the spec",
                    hint="name a file of the same folder, without slashes; partitions may lie in folders: "
                    "data/{date}.csv",
                    file=layout.SPEC_FILE,
                    key="data.path",
                    found=path,
                )
            )
        chosen = [found for found in beside if fnmatchcase(file_name(found), path)]
    formats = {data_format(found, spec) for found in chosen}
    if len(formats) > 1 or None in formats:
        raise SubmissionError(
            ValidationIssue(
                "the format of the data cannot be told from its name",
                hint='say [data] format = "csv" or "parquet"',
                file=layout.SPEC_FILE,
                key="data.format",
                found=", ".join(map(file_name, chosen))[:200],
            )
        )
    return chosen


def check_data(
    store: Store, chosen: list[ObjectInfo], spec: Spec, limits: IntakeLimits
) -> tuple[list[ObjectInfo], list[ValidationIssue]]:
    """Look at the beginning of each data file.

    Returns:
        The files as they are now, and what is wrong with them.

    Raises:
        ObjectMissingError: a file is gone.
    """
    total = sum(found.size for found in chosen)
    if total > limits.data_bytes:
        return chosen, [
            ValidationIssue(
                "the data is too large",
                hint="drop less, or ask the platform's team to raise the limit",
                file=file_name(chosen[0]),
                found=f"{total:,} bytes",
                expected=f"at most {limits.data_bytes:,} bytes",
            )
        ]
    current: list[ObjectInfo] = []
    issues: list[ValidationIssue] = []
    for found in chosen:
        head, info = store.read(found.key, limit=limits.head_bytes)
        current.append(info)
        name = file_name(found)
        if data_format(found, spec) == "parquet":
            issues += _check_parquet_head(name, head)
        else:
            complete = len(head) >= info.size
            issues += check_csv_head(name, head, spec, complete=complete, max_columns=limits.columns)
    return current, issues


def data_format(found: ObjectInfo, spec: Spec) -> str | None:
    """Return the format that the spec gives a data file, or its name; ``None`` where neither does."""
    if spec.data.format:
        return spec.data.format
    ending = found.key.lower().rpartition(".")[2]
    return ending if ending in {"csv", "parquet"} else None


def _check_parquet_head(file: str, head: bytes) -> list[ValidationIssue]:
    if not head:
        return [ValidationIssue("the file is empty", hint="drop it again", file=file)]
    if len(head) < _SMALLEST_PARQUET or not head.startswith(_PARQUET_MARK):
        return [
            ValidationIssue(
                "the file is not Parquet",
                hint="give it the ending of what it is, or write it again",
                file=file,
                found=repr(head[:4]),
                expected=repr(_PARQUET_MARK),
            )
        ]
    return []
