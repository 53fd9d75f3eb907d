"""Infer the schema of a data file that is in S3 already, from a part of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dmls_core.data.formats.names import file_format, is_plain_text
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

COPIED = 256 << 20
"""Size up to which another file is read; of a larger Parquet file, only the columns and their types are."""

_STEP = 8 << 20
"""Bytes that are copied at a time."""


def infer_stored_schema(team: str, name: str, file: str, data: Data | None = None) -> InferredSchema:
    """Infer the schema of a data file in a job's folder; raise ``DataError`` if it cannot be read."""
    from dmls_core.intake.schema_inference import (
        infer_file_schema,
        infer_footer_schema,
        infer_part_schema,
        read_chunks,
    )

    if problems := check_data_name(file):
        raise DataError(problems)
    key, store = layout.incoming_file(team, name, file), open_store()

    def read(start: int, limit: int) -> bytes:
        return store.read(key, start=start, limit=limit)[0]

    size, keys = store.read(key, limit=0)[1].size, data.reading if data else None
    if is_plain_text(file):
        return infer_schema(file, read_chunks(file, size, read), size, data)
    if size > COPIED and file_format(file).has_footer:
        return as_schema(infer_footer_schema(file, read_footer(size, read), size, keys))
    with TemporaryDirectory(prefix="dmls-schema-") as folder:
        part = copy_part(store, key, Path(folder) / file, size)
        infer = partial(infer_part_schema, size=size) if file_format(file).is_text else infer_file_schema
        return as_schema(infer(part, keys=keys))


def copy_part(store: Store, key: str, path: Path, size: int) -> Path:
    """Copy the beginning of a compressed file of ``size`` bytes, or a whole file; return ``path``.

    Raises:
        DataError: the file is not compressed text and has more than ``COPIED`` bytes.
    """
    packed = file_format(path.name).is_text
    if not packed and size > COPIED:
        hint = "write the spec by hand, or use `dmls init` and `dmls plan` on a machine that has the file"
        expected = f"at most {COPIED:,} bytes"
        raise DataError(ValidationIssue("the file is too large", hint, file=path.name, expected=expected))
    end = min(size, PACKED) if packed else size
    with path.open("wb") as copy:
        for start in range(0, end, _STEP):
            copy.write(store.read(key, start=start, limit=min(_STEP, end - start))[0])
    return path
