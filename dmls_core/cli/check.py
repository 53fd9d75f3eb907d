"""What admission would say of files that have not been dropped yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_core.errors import Problem, SubmissionError, UserError

if TYPE_CHECKING:
    from dmls_core.spec import Spec


def check_files(spec_file: Path, data_files: Sequence[Path]) -> Spec:
    """Read a spec and look at the beginning of its data, by the rules of admission.

    Args:
        spec_file: the TOML file.
        data_files: CSV or Parquet; none: only the spec is checked.

    Raises:
        UserError: with every problem of the spec, or of the data if the spec is valid.
    """
    from dmls_core.intake.data_files import check_data, choose_data
    from dmls_core.intake.limits import IntakeLimits
    from dmls_core.intake.submissions import Submission
    from dmls_core.models import load_spec
    from dmls_core.store import open_store

    spec = load_spec(read_bytes(spec_file), str(spec_file))
    limits = IntakeLimits.from_environment()
    stores = {path.name: open_store(str(path.absolute().parent)) for path in data_files}
    found = [info for name, store in stores.items() if (info := store.head(name))]
    submission = Submission(team="", job="", spec=None, files=tuple(found), problems=(), fingerprint="")
    chosen = choose_data(submission, spec) if found else []
    if found and not chosen:
        raise SubmissionError(
            Problem(
                "none of the data files has the name that the spec asks for",
                file=str(spec_file),
                key="data.path",
                found=", ".join(stores),
                expected=spec.data.path or "*.csv or *.parquet",
            )
        )
    problems = [
        problem for info in chosen for problem in check_data(stores[info.key], [info], spec, limits)[1]
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
