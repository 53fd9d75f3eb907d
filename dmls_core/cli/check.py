"""What admission would say of files that have not been dropped yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_core.errors import Problem, SubmissionError, UserError

if TYPE_CHECKING:
    from dmls_core.spec import Spec

SHOWN = 20
"""Names that a message lists."""


def check_files(spec_file: Path, data_files: Sequence[Path]) -> Spec:
    """Read a spec and look at the beginning of its data, by the rules of admission.

    Args:
        spec_file: the TOML file.
        data_files: CSV or Parquet, or folders of them; none: only the spec is checked.

    Raises:
        UserError: with every problem of the spec, or of the data if the spec is valid.
    """
    from dmls_core.intake.data_files import check_data, choose_data
    from dmls_core.intake.limits import IntakeLimits
    from dmls_core.intake.submissions import Submission
    from dmls_core.intake.submit import named_files
    from dmls_core.models import load_spec
    from dmls_core.store import layout, open_store

    spec = load_spec(read_bytes(spec_file), str(spec_file))
    limits = IntakeLimits.from_environment()
    files = named_files(data_files)
    stores = {
        layout.incoming_file("", "", name): open_store(str(path.absolute().parent)) for name, path in files
    }
    there = {key: info for key, store in stores.items() if (info := store.head(key.rpartition("/")[2]))}
    found = tuple(replace(info, key=key) for key, info in there.items())
    submission = Submission(team="", job="", spec=None, files=found, problems=(), fingerprint="")
    chosen = choose_data(submission, spec) if found else []
    if found and not chosen:
        raise SubmissionError(
            Problem(
                "none of the data files has the name that the spec asks for",
                file=str(spec_file),
                key="data.path",
                found=", ".join(name for name, _ in files[:SHOWN]),
                expected=spec.data.path or "*.csv or *.parquet",
            )
        )
    problems = [
        problem
        for info in chosen
        for problem in check_data(stores[info.key], [there[info.key]], spec, limits)[1]
    ]
    if problems:
        raise SubmissionError(problems)
    return spec


def read_bytes(file: Path) -> bytes:
    """Return a file's content.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(Problem(f"cannot be read: {error.strerror}", file=str(file))) from error
