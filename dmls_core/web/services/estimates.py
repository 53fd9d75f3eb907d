"""Estimates of a run before its submission: ``dmls plan`` on a sample of the data."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic import BaseModel, Field

from dmls_core import sandbox
from dmls_core.airflow.settings import airflow_settings
from dmls_core.data.formats.encodings import is_utf16
from dmls_core.data.formats.names import file_format, is_plain_text, text_name
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.submissions import check_data_name
from dmls_core.store import layout
from dmls_core.web.services import open_store
from dmls_core.web.services.stored_schema import copy_part

_LIMITS = sandbox.Limits(memory=4 << 30, seconds=60, cpu_seconds=60)


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
    from dmls_core.data.formats.thinning import thin_text
    from dmls_core.intake.schema_inference import HEAD, WHOLE, read_chunks
    from dmls_core.intake.schema_inference.parquet_sample import SECONDS, write_rows
    from dmls_core.models import load_spec

    if problems := check_data_name(file):
        raise DataError(problems)
    key, store = layout.incoming_file(team, name, file), open_store()

    def read(start: int, limit: int) -> bytes:
        return store.read(key, start=start, limit=limit)[0]

    size = store.read(key, limit=0)[1].size
    if size <= WHOLE:
        return estimate(toml, file, read(0, size), size)
    if is_plain_text(file):
        return estimate(toml, file, read_chunks(file, size, read), size)
    with tempfile.TemporaryDirectory() as folder:
        copied = copy_part(store, key, Path(folder) / file, size)
        file_type = file_format(file)
        if file_type.has_footer:
            path = Path(folder) / f"rows{file_type.suffixes[0]}"
            total, rows = sandbox.run(write_rows, str(copied), str(path), limits=_LIMITS, file=file)
            return _plan(toml, file, path, total / rows)
        if not file_type.is_text:
            return _plan(toml, file, copied, 1)
        path = Path(folder) / text_name(file).lower()
        encoding, share = load_spec(toml.encode()).data.encoding, copied.stat().st_size / size
        args = (str(copied), encoding, str(path), HEAD, SECONDS, share < 1)
        thinned = sandbox.run(thin_text, *args, limits=_LIMITS, file=file)
        factor = thinned["bytes"] / share / max(1, path.stat().st_size)
        path.write_bytes(path.read_bytes().decode().encode(encoding))
        return _plan(toml, file, path, factor)


def estimate(toml: str, file: str, content: bytes, size: int) -> Estimate:
    """Estimate a run from a part of a data file of ``size`` bytes; ``content`` is as for ``infer_schema``.

    Time grows in proportion to the rows that are not in the sample. Memory is that of a table with all rows,
    which is read from disk if it does not fit the limit of the spec or of the platform.

    Raises:
        UserError: the spec or the data is wrong.
        DataError: the file is large and cannot be read in part.
    """
    name = Path(file).name.lower()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{''.join(Path(name).suffixes[-2:])}"
        if len(content) < size:
            content = _records(file, content, packed=not is_plain_text(name))
        path.write_bytes(content)
        return _plan(toml, file, path, size / max(1, len(content)))


def _records(file: str, content: bytes, *, packed: bool) -> bytes:
    """Return the whole records of a part of a file; raise ``DataError`` if there are none."""
    from dmls_core.intake.file_sample import join_chunks
    from dmls_core.intake.schema_inference import HEAD

    if packed:
        hint = "run `dmls plan` on a machine that has the file"
        raise DataError(ValidationIssue("it cannot be estimated from a part of it", hint=hint, file=file))
    records = join_chunks(content, HEAD)
    if not records:
        raise DataError(ValidationIssue("its first row is too long", file=file))
    return records.decode("utf-8-sig").encode("utf-16") if is_utf16(content) else records


def _plan(toml: str, file: str, path: Path, factor: float) -> Estimate:
    from dmls_core.training.plan import plan_file

    settings = airflow_settings()
    plan = sandbox.run(plan_file, toml, str(path), factor, settings.memory, limits=_LIMITS, file=file)
    price = (plan.pop("gpu") and settings.gpu_hourly_price) or settings.hourly_price
    return Estimate(**plan, cost=cost(plan["seconds"], price))


def cost(seconds: float, hourly_price: str) -> str:
    """Return the price of a trainer's time; ``hourly_price`` is such as ``0.40 EUR``, or empty."""
    if not hourly_price:
        return ""
    price, currency = hourly_price.split()
    amount = float(price) * seconds / 3600
    return f"{amount:,.2f} {currency}" if amount >= 0.01 or not amount else f"less than 0.01 {currency}"
