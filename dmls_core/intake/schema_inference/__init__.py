"""Infer the schema of a data file from its first rows, and draft a spec for it."""

from __future__ import annotations

from dmls_core.intake.schema_inference.columns import Column, Kind
from dmls_core.intake.schema_inference.draft_spec import draft_spec
from dmls_core.intake.schema_inference.inferred_schema import (
    InferredSchema,
    infer_file_schema,
    infer_parquet_schema,
    infer_schema,
)
from dmls_core.intake.schema_inference.sample import (
    HEAD,
    WHOLE_PARQUET,
    Sample,
    parquet_tail,
    read_sample,
    sample_file,
)

__all__ = [
    "HEAD",
    "WHOLE_PARQUET",
    "Column",
    "InferredSchema",
    "Kind",
    "Sample",
    "draft_spec",
    "infer_file_schema",
    "infer_parquet_schema",
    "infer_schema",
    "parquet_tail",
    "read_sample",
    "sample_file",
]
