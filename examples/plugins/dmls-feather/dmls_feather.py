"""Format of data files for DMLS: Feather, Arrow's own file format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmls_core.data.formats import FileSample, Format
from dmls_core.spec.data_table import Data

MARK = b"ARROW1"


class FeatherFormat(Format):
    """Feather becomes Parquet, which keeps the types of the columns."""

    name = "feather"
    title = "Feather"
    suffixes = (".feather", ".arrow")

    def detect(self, head: bytes) -> Mapping[str, Any] | None:
        return {} if head.startswith(MARK) else None

    def convert(self, path: Path, data: Data, target: Path) -> None:
        import polars as pl  # imported where it is used: the command line imports this module

        pl.scan_ipc(path).sink_parquet(target)

    def sample(self, path: Path, data: Data, target: Path, *, rows: int, seconds: float) -> FileSample:
        import polars as pl

        scan = pl.scan_ipc(path)
        total = int(scan.select(pl.len()).collect().item())
        scan.gather_every(max(1, -(-total // rows))).sink_parquet(target)
        return FileSample(total, complete=total <= rows)
