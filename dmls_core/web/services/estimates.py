"""Estimates of a run before its submission: ``dmls plan`` on the beginning of the data."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from dmls_core import sandbox
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.submissions import check_data_name
from dmls_core.store import layout
from dmls_core.web.services import open_store

SAMPLE_BYTES = 1 << 20
"""The sample of a larger CSV; other files are read whole."""

WHOLE_BYTES = 8 << 20

LIMITS = sandbox.Limits(memory=4 << 30, seconds=60, cpu_seconds=60)


class Estimate(BaseModel):
    """What a run is expected to need on a machine like this server, with one CPU."""

    rows: int
    seconds: float
    memory_bytes: int
    sampled: bool = Field(description="Whether it is extrapolated from a sample of the rows.")
    warnings: list[str]


def estimate_stored(team: str, name: str, toml: str, file: str) -> Estimate:
    """Estimate a run on a data file in a job's folder; raises as ``estimate``."""
    if problems := check_data_name(file):
        raise DataError(problems)
    content, info = open_store().read(layout.incoming_file(team, name, file), limit=WHOLE_BYTES)
    return estimate(toml, file, content, info.size)


def estimate(toml: str, file: str, content: bytes, size: int) -> Estimate:
    """Estimate a run from the first ``content`` of a data file of ``size`` bytes.

    Time and memory grow in proportion to the rows that are not in the sample.

    Raises:
        UserError: the spec or the data is wrong.
        DataError: the file is large and cannot be read in part.
    """
    from dmls_core.training.memory import MATRICES

    suffix = Path(file).suffix.lower()
    if len(content) < size:
        end = content.rfind(b"\n", 0, SAMPLE_BYTES) + 1
        if suffix != ".csv" or not end:
            hint = "run `dmls plan` on a machine that has the file"
            raise DataError(
                ValidationIssue("only a CSV can be estimated from its beginning", hint=hint, file=file)
            )
        content = content[:end]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{suffix}"
        path.write_bytes(content)
        plan = sandbox.run(plan_file, toml, str(path), limits=LIMITS, file=file)
    factor = size / len(content)
    return Estimate(
        rows=round(plan["rows"] * factor),
        seconds=plan["seconds"] * factor,
        memory_bytes=plan["memory_bytes"] + int(MATRICES * plan["matrix_bytes"] * (factor - 1)),
        sampled=factor > 1,
        warnings=plan["warnings"],
    )


def plan_file(toml: str, path: str) -> dict[str, Any]:
    """Return the plan of a run on one file as JSON; called in the sandbox."""
    from dmls_core.models import load_spec
    from dmls_core.training.plan import plan_run

    return plan_run(load_spec(toml.encode()), [Path(path)]).as_json()
