"""Parquet to CSV and back, for batch scoring; called in the sandbox."""

from __future__ import annotations

from pathlib import Path

from dmls_core.data.formats.damage import readable
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.serving.predict.connect import PREDICTION
from dmls_core.serving.predict.predictor import MODEL_VERSION


def parquet_as_csv(source: str, target: str) -> None:
    """Write a Parquet file as a CSV with a header.

    Raises:
        DataError: it is not Parquet, or has columns of lists, objects or bytes.
    """
    import polars as pl

    file = Path(source).name
    with readable(Path(source), "the file is not Parquet"):
        frame = pl.scan_parquet(source, glob=False)
        wrong = {n: t for n, t in frame.collect_schema().items() if t.is_nested() or t == pl.Binary}
        if wrong:
            raise DataError(
                [
                    ValidationIssue("holds no single values", key=name, found=str(data_type), file=file)
                    for name, data_type in wrong.items()
                ]
            )
        frame.sink_csv(target, null_value="NA")  # an empty line would be no row


def add_predictions(source: str, predicted: str, target: str) -> None:
    """Write the rows of the Parquet file ``source`` with the last columns of the CSV ``predicted``."""
    import polars as pl

    source_rows = pl.scan_parquet(source, glob=False)
    rows = pl.scan_csv(predicted, infer_schema=False, glob=False)
    names = rows.collect_schema().names()
    added = names[len(source_rows.collect_schema()) :]
    texts = {PREDICTION} if len(added) > 2 else set()  # a regression has no probabilities
    types = {
        n: pl.Int32() if n == MODEL_VERSION else pl.String() if n in texts else pl.Float32() for n in added
    }
    pl.concat(
        [source_rows, rows.select(pl.col(n).cast(t) for n, t in types.items())], how="horizontal"
    ).sink_parquet(target)
