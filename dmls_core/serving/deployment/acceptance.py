"""What a model must pass before Triton loads it: its size, its signature, and files without damage."""

from __future__ import annotations

from pathlib import Path

from dmls_core.serving.deployment.signed_models import (
    check_run_signature,
    check_version_signature,
    signers,
)
from dmls_core.serving.formats.model_check import check_model, check_size
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.model_config import CANDIDATE


def check_run(folder: Path, model: str, run_key: str) -> None:
    """Check a run's ``model/`` folder before it becomes a version of ``<team>.<job>``.

    Raises:
        UserError: the model exceeds the size limit, or no installed package serves its format.
        ServingError: a file is missing or damaged, or the model is not as a trainer signed it.
    """
    check_size(folder, model)
    check_run_signature(folder, model, run_key, model)
    check_model(folder, model)


def check_version(repository: Repository, model: str, version: int) -> None:
    """Check a version's files, the model's in a child process; raise ServingError for damage."""
    repository.check(model, version)
    with repository.local_copy(model, version) as folder:
        check_version_signature(folder, model, version)
        check_model(folder, f"{model} version {version}")


def check_candidate(repository: Repository, model: str, version: int) -> None:
    """Check that a staged version and the candidate's copy are as they were written; raise ServingError."""
    repository.check(model, version)
    repository.check_copy(model, version, CANDIDATE)
    if signers():
        with repository.local_copy(model, version) as folder:
            check_version_signature(folder, model, version)
