"""Estimates of a run before its submission: ``dmls plan`` on the beginning of the data."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic import BaseModel, Field

from dmls_core import sandbox
from dmls_core.airflow.settings import airflow_settings
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
    cost: str = Field(
        description="Price of the time, such as `0.12 EUR`; empty if the platform has no price."
    )
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

    Time grows in proportion to the rows that are not in the sample. Memory is that of a table with all rows,
    which is read from disk if it does not fit the limit of the spec or of the platform.

    Raises:
        UserError: the spec or the data is wrong.
        DataError: the file is large and cannot be read in part.
    """
    from dmls_core.training.plan import plan_file

    name = Path(file).name.lower()
    if len(content) < size:
        end = content.rfind(b"\n", 0, SAMPLE_BYTES) + 1
        if not name.endswith(".csv") or not end:
            hint = "run `dmls plan` on a machine that has the file"
            raise DataError(
                ValidationIssue("only a CSV can be estimated from its beginning", hint=hint, file=file)
            )
        content = content[:end]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{''.join(Path(name).suffixes[-2:])}"
        path.write_bytes(content)
        settings = airflow_settings()
        plan = sandbox.run(plan_file, toml, str(path), size, settings.memory, limits=LIMITS, file=file)
    price = (plan.pop("gpu") and settings.gpu_hourly_price) or settings.hourly_price
    return Estimate(**plan, cost=cost(plan["seconds"], price))


def cost(seconds: float, hourly_price: str) -> str:
    """Return the price of a trainer's time; ``hourly_price`` is such as ``0.40 EUR``, or empty."""
    if not hourly_price:
        return ""
    price, currency = hourly_price.split()
    amount = float(price) * seconds / 3600
    return f"{amount:,.2f} {currency}" if amount >= 0.01 or not amount else f"less than 0.01 {currency}"
