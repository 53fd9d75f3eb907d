"""What admission would say of files that have not been dropped yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_core.errors import SubmissionError, UserError, ValidationIssue

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
        UserError: with every issue of the spec, or of the data if the spec is valid.
    """
    from dmls_core.intake.data_files import check_data, choose_data, data_format
    from dmls_core.intake.submissions import Submission, file_name, named_files
    from dmls_core.models import load_spec
    from dmls_core.settings import IntakeLimits
    from dmls_core.store import layout, open_store

    spec = load_spec(read_bytes(spec_file), str(spec_file))
    limits = IntakeLimits.from_environment()
    files = named_files(data_files)
    # A link is followed here, as an upload does: a store takes none for a file.
    places = {layout.incoming_file("", "", name): path.resolve() for name, path in files}
    stores = {key: open_store(str(path.parent)) for key, path in places.items()}
    there = {key: info for key, store in stores.items() if (info := store.head(places[key].name))}
    found = tuple(replace(info, key=key) for key, info in there.items())
    submission = Submission(team="", job="", spec=None, files=found, issues=(), fingerprint="")
    chosen = choose_data(submission, spec) if found else []
    if found and not chosen:
        raise SubmissionError(
            ValidationIssue(
                "none of the data files has the name that the spec asks for",
                file=str(spec_file),
                key="data.path",
                found=", ".join(name for name, _ in files[:SHOWN]),
                expected=spec.data.path or "*.csv or *.parquet",
            )
        )
    issues = []
    for info in chosen:
        data = spec.data.model_copy(update={"format": data_format(info, spec)})
        named = spec.model_copy(update={"data": data})
        found_wrong = check_data(stores[info.key], [there[info.key]], named, limits)[1]
        issues += [replace(issue, file=file_name(info)) for issue in found_wrong]
    if issues:
        raise SubmissionError(issues)
    return spec


def read_bytes(file: Path) -> bytes:
    """Return a file's content.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(ValidationIssue(f"cannot be read: {error.strerror}", file=str(file))) from error
