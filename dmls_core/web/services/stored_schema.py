"""Infer the schema of a data file that is in S3 already, from a part of it."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dmls_core.data.formats.names import COMPRESSED, format_of, needs_whole
from dmls_core.data.formats.parquet_footer import read_footer
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.submissions import check_data_name
from dmls_core.store import layout
from dmls_core.web.services import open_store
from dmls_core.web.services.submissions import InferredSchema, as_schema, infer_schema

if TYPE_CHECKING:
    from dmls_core.spec.data_table import Data
    from dmls_core.store.base import Store

PACKED = 64 << 20
"""Bytes of a compressed file that are read."""

PARQUET = 256 << 20
"""Size up to which a Parquet file is sampled; of a larger one, only the columns and their types are read."""


def infer_stored_schema(team: str, name: str, file: str, data: Data | None = None) -> InferredSchema:
    """Infer the schema of a data file in a job's folder; raise ``DataError`` if it must be read whole."""
    from dmls_core.intake.schema_inference import (
        WHOLE,
        infer_file_schema,
        infer_part_schema,
        read_places,
    )

    if problems := check_data_name(file):
        raise DataError(problems)
    key, store = layout.incoming_file(team, name, file), open_store()

    def read(start: int, limit: int) -> bytes:
        return store.read(key, start=start, limit=limit)[0]

    size = store.read(key, limit=0)[1].size
    large = size > WHOLE and format_of(file) == "parquet"
    if file.lower().endswith(COMPRESSED) or (large and size <= PARQUET):
        with TemporaryDirectory(prefix="dmls-schema-") as folder:
            part = copy_part(store, key, Path(folder) / file, size)
            keys = data.reading if data else None
            return as_schema(
                infer_file_schema(part, keys=keys) if large else infer_part_schema(part, size, keys)
            )
    if large:
        return infer_schema(file, read_footer(size, read), size, data)
    if not needs_whole(file):
        return infer_schema(file, read_places(file, size, read), size, data)
    head, info = store.read(key, limit=WHOLE)
    if info.size > len(head):
        hint = "write the spec by hand, or infer it with `dmls init` on a machine that has the file"
        raise DataError(
            ValidationIssue("the file is too large to read its schema from S3", hint=hint, file=file)
        )
    return infer_schema(file, head, info.size, data)


def copy_part(store: Store, key: str, path: Path, size: int) -> Path:
    """Copy the beginning of a compressed file of ``size`` bytes, or a whole Parquet file; return ``path``.

    Raises:
        DataError: the Parquet file has more than ``PARQUET`` bytes.
    """
    from dmls_core.intake.schema_inference import WHOLE

    whole = format_of(path.name) == "parquet"
    if whole and size > PARQUET:
        hint = "run `dmls plan` on a machine that has the file"
        expected = f"at most {PARQUET:,} bytes"
        raise DataError(ValidationIssue("the file is too large", hint, file=path.name, expected=expected))
    end = size if whole else min(size, PACKED)
    with path.open("wb") as copy:
        for start in range(0, end, WHOLE):
            copy.write(store.read(key, start=start, limit=min(WHOLE, end - start))[0])
    return path
