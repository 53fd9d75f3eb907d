"""Drop a submission: what any S3 client does, in the right order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dmls_core.errors import Problem, SubmissionError
from dmls_core.intake.submissions import DATA_ENDINGS
from dmls_core.store import ObjectInfo, Store, layout


def submit(
    store: Store, spec_path: Path, data_paths: Sequence[Path], team: str, name: str
) -> list[ObjectInfo]:
    """Upload the data, and the spec last, so that no intake sees the spec without its data.

    Returns:
        The objects written, the spec last.

    Raises:
        SubmissionError: a name is unfit or a file is missing; nothing was uploaded then.
        StoreError: the upload failed.
    """
    layout.check_name("team", team)
    layout.check_name("job", name)
    problems = [*_missing(spec_path), *(problem for path in data_paths for problem in _check(path))]
    names = [path.name for path in data_paths]
    problems += [
        Problem("two data files have the same name", hint="rename one", file=double)
        for double in sorted({double for double in names if names.count(double) > 1})
    ]
    if problems:
        raise SubmissionError(problems)
    written = [store.upload(layout.incoming_file(team, name, path.name), path) for path in data_paths]
    return [*written, store.upload(layout.incoming_file(team, name, layout.SPEC_FILE), spec_path)]


def _missing(path: Path) -> list[Problem]:
    return (
        [] if path.is_file() else [Problem("there is no such file", hint="correct the path", file=str(path))]
    )


def _check(path: Path) -> list[Problem]:
    if missing := _missing(path):
        return missing
    if path.name.startswith((".", "_status.")) or not path.name.isprintable():
        return [Problem("a data file cannot have this name", hint="rename it", file=str(path))]
    if not path.name.lower().endswith(DATA_ENDINGS):
        endings = " or ".join(DATA_ENDINGS)
        return [Problem("this is no data file", hint=f"its name must end in {endings}", file=str(path))]
    return []
