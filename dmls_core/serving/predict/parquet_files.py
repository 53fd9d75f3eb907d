"""Data files of any format as the CSV that ``predict_file`` reads, and predictions back to Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dmls_core import sandbox
from dmls_core.data.formats.base import is_parquet
from dmls_core.data.formats.conversion import convert_all, original_lines
from dmls_core.data.formats.damage import readable
from dmls_core.data.formats.names import file_format, format_of, needs_conversion
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.serving.predict.connect import PREDICTION
from dmls_core.serving.predict.predictor import MODEL_VERSION
from dmls_core.spec.data_table import Data

LIMITS = sandbox.Limits(memory=2 << 30, seconds=3600, cpu_seconds=3600)
"""Limits of the conversion of one file."""


@contextmanager
def rows_as_csv(
    source: Path, options: Mapping[str, Any], folder: Path, *, limits: sandbox.Limits = LIMITS
) -> Iterator[Path]:
    """Yield a data file as a CSV with a header, in ``folder`` if it is another format.

    ``options`` are ``[data]`` as JSON data. The format that the file's name shows overrides theirs, and marks
    of missing values stay: the model's encoder knows them. A ``DataError`` of the block names the file, its
    line if it is text, and the field if it has a delimiter.

    Raises:
        DataError: the file is not what its name or ``options`` say.
    """
    named = {"format": None} if format_of(source.name) else {}
    data = Data.model_validate({**options, "missing": (), **named})
    rows = source
    if needs_conversion(source.name, data):
        arguments = [str(source)], data.model_dump(mode="json"), str(folder / "converted")
        rows = Path(sandbox.run(convert_all, *arguments, limits=limits, file=source.name)[0])
    source_format = file_format(source.name, data.format)
    has_lines = source_format.is_text or not is_parquet(rows)
    has_fields = "delimiter" in source_format.keys
    if not has_lines:
        text = folder / "rows.csv"
        sandbox.run(parquet_as_csv, str(rows), str(text), limits=limits, file=source.name)
        rows = text
    try:
        with original_lines(source.name, data):
            yield rows
    except DataError as error:
        raise DataError(
            [
                replace(
                    issue,
                    file=str(source),
                    line=issue.line if has_lines else None,
                    column=issue.column if has_fields else None,
                )
                for issue in error.issues
            ]
        ) from error


def parquet_as_csv(source: str, target: str) -> None:
    """Write a Parquet file as a CSV with a header; called in the sandbox.

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
    """Write the rows of a Parquet file with the last columns of the CSV ``predicted``.

    It is called in the sandbox.
    """
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
