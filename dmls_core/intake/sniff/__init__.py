"""Look at the beginning of a data file: its columns, what may be predicted, a spec to begin with."""

from __future__ import annotations

from dmls_core.intake.sniff.columns import Column, Kind
from dmls_core.intake.sniff.draft import draft
from dmls_core.intake.sniff.sample import HEAD, WHOLE_PARQUET, Sample, parquet_tail, read_sample, sample_file
from dmls_core.intake.sniff.sniffed import Sniffed, sniff

__all__ = [
    "HEAD",
    "WHOLE_PARQUET",
    "Column",
    "Kind",
    "Sample",
    "Sniffed",
    "draft",
    "parquet_tail",
    "read_sample",
    "sample_file",
    "sniff",
]
