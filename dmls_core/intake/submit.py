"""Drop a submission: what any S3 client does, in the right order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dmls_core.errors import SubmissionError, ValidationIssue
from dmls_core.intake.submissions import DATA_ENDINGS
from dmls_core.store import ObjectInfo, Store, layout


def submit(
    store: Store, spec_path: Path, data_paths: Sequence[Path], team: str, name: str
) -> list[ObjectInfo]:
    """Upload the data, and the spec last, so that no intake sees the spec without its data.

    Args:
        store: takes the files.
        spec_path: the spec.
        data_paths: files, and folders of files, as ``named_files`` takes them.
        team: owner of the job.
        name: of the job.

    Returns:
        The objects written, the spec last.

    Raises:
        SubmissionError: a name is unfit or a file is missing; nothing was uploaded then.
        StoreError: the upload failed.
    """
    layout.check_name("team", team)
    layout.check_name("job", name)
    files = named_files(data_paths)
    issues = [*_missing(spec_path), *(issue for _, path in files for issue in _check(path))]
    names = [file_name for file_name, _ in files]
    issues += [
        ValidationIssue("two data files have the same name", hint="rename one", file=double)
        for double in sorted({double for double in names if names.count(double) > 1})
    ]
    if issues:
        raise SubmissionError(issues)
    written = [store.upload(layout.incoming_file(team, name, file_name), path) for file_name, path in files]
    return [*written, store.upload(layout.incoming_file(team, name, layout.SPEC_FILE), spec_path)]


def named_files(paths: Sequence[Path]) -> list[tuple[str, Path]]:
    """Return files with their names below the job's folder.

    A folder stands for the data files in it and in its own folders, as partitions lie in them; its name is
    the beginning of theirs: ``data`` gives ``data/2026-01-05.csv``. Hidden files and others are left out.

    Raises:
        SubmissionError: a folder holds no data file.
    """
    found = []
    for path in paths:
        if not path.is_dir():
            found.append((path.name, path))
            continue
        base = path.absolute().parent
        files = [file for file in sorted(path.absolute().rglob("*")) if _is_data(file, base)]
        if not files:
            hint = f"put files there whose names end in {' or '.join(DATA_ENDINGS)}"
            raise SubmissionError(ValidationIssue("the folder holds no data file", hint=hint, file=str(path)))
        found += [(file.relative_to(base).as_posix(), file) for file in files]
    return found


def _is_data(file: Path, base: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(base).parts)
    return file.name.lower().endswith(DATA_ENDINGS) and not hidden and file.is_file()


def _missing(path: Path) -> list[ValidationIssue]:
    return (
        []
        if path.is_file()
        else [ValidationIssue("there is no such file", hint="correct the path", file=str(path))]
    )


def _check(path: Path) -> list[ValidationIssue]:
    return _missing(path) or check_data_name(path.name, str(path))


def check_data_name(name: str, shown: str = "") -> list[ValidationIssue]:
    """Return what is wrong with the name of a data file; empty if nothing is.

    Args:
        name: without folders.
        shown: what messages call the file, if not by its name.
    """
    if name.startswith((".", "_status.")) or not name.isprintable() or "/" in name or "\\" in name:
        return [ValidationIssue("a data file cannot have this name", hint="rename it", file=shown or name)]
    if not name.lower().endswith(DATA_ENDINGS):
        endings = " or ".join(DATA_ENDINGS)
        return [
            ValidationIssue(
                "this is no data file", hint=f"its name must end in {endings}", file=shown or name
            )
        ]
    return []
