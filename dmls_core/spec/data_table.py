"""The tables of a spec that say where its data is, and how it is written."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from dmls_core.spec.values import Encoding, FileFormat, Marks, Name, NotMissing, Window


class SpecTable(BaseModel):
    """A table of the spec: immutable, strict about types, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Source(SpecTable):
    """Data that is not next to the spec: a table, a query, or files, through an Airflow connection."""

    ADDED: ClassVar = ("delta", "iceberg", "version", "snapshot")
    """Keys that were added without a new ``SCHEMA``; see ``dmls_core.spec.spec.ADDED``."""

    connection: str = Field(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Id of an Airflow connection that the platform lets the team use.",
    )
    table: str | None = Field(
        None,
        min_length=1,
        max_length=250,
        description="A table or view of a database.",
        examples=["orders", "sales.orders"],
    )
    query: str | None = Field(
        None,
        min_length=1,
        max_length=20_000,
        description="A SELECT of a database; :start and :end stand for the times of the run's interval.",
        examples=["SELECT * FROM orders WHERE day >= :start AND day < :end"],
    )
    path: str | None = Field(
        None,
        max_length=900,
        pattern=r"^[a-z][a-z0-9+]*://[^/]+/",
        description="Files of an object store: all below a folder with a slash at its end, or those that "
        "match a pattern. Fields as in path of [data]; folders such as dt=2026-01-31 are columns.",
        examples=["s3://lake/orders/", "s3://lake/orders/dt={date}/*.parquet"],
    )

    delta: str | None = Field(
        None,
        max_length=900,
        pattern=r"^[a-z][a-z0-9+]*://[^/]+/",
        description="The folder of a Delta Lake table.",
        examples=["s3://lake/orders"],
    )
    iceberg: str | None = Field(
        None,
        min_length=1,
        max_length=900,
        description="An Iceberg table: its name in the connection's catalog, or the address of its metadata.",
        examples=["sales.orders", "s3://lake/orders/metadata/v3.metadata.json"],
    )
    version: int | None = Field(
        None, ge=0, description="The version of the Delta Lake table; by default each run chooses."
    )
    snapshot: int | None = Field(
        None,
        ge=0,
        description="The id of the Iceberg table's snapshot; by default each run chooses.",
    )

    @property
    def label(self) -> str:
        """The source in messages: the connection, and what is read through it."""
        return f"{self.connection}: {self.table or self.path or self.lake or 'the query'}"

    @property
    def lake(self) -> str | None:
        """The Delta Lake or Iceberg table, if it is one."""
        return self.delta or self.iceberg

    @property
    def pinned(self) -> int | None:
        """The version or snapshot that the spec names."""
        return self.version if self.version is not None else self.snapshot

    @property
    def has_history(self) -> bool:
        """Whether a run can read the table as it was at the end of its interval."""
        return self.lake is not None and self.pinned is None

    @property
    def bound(self) -> bool:
        """Whether the query has parameters for the run's interval."""
        return self.query is not None and bool(PARAMETER.findall(self.query))


PARAMETER = re.compile(r"(?<![:\w\\]):(\w+)(?!:)")
"""A parameter of a query, as SQLAlchemy finds it."""


DecimalMark = Literal[".", ","]
ThousandsMark = Literal["", ".", ",", " ", "'"]


class NumberNotation(SpecTable):
    """How the numbers of one column are written."""

    decimal: DecimalMark | None = Field(None, description="The decimal mark; by default that of [data].")
    thousands: ThousandsMark | None = Field(
        None, description="What separates thousands; by default as in [data]."
    )
    unit: str = Field(
        "",
        max_length=20,
        pattern=r"^\S*$",
        description="A currency, % or unit beside the numbers, which is removed: 52.88% becomes 52.88.",
        examples=["%", "$", "kg"],
    )


class Data(SpecTable):
    """The data files, and how to read them."""

    path: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="File name or pattern in the spec's folder; required if it has several data files. "
        "{date}, {year}, {month}, {day} and {hour} make it a pattern of partitions.",
        examples=["train.csv", "part-*.parquet", "data/{date}.csv", "data/dt={date}/*.parquet"],
    )
    source: Source | None = Field(
        None, description="A table that says where the data is, if it is not next to the spec."
    )
    format: FileFormat | None = Field(
        None,
        description="Format of the files: csv, jsonl, excel, parquet or one that a package adds; by default "
        "it follows from their names.",
    )
    delimiter: Literal[",", ";", "\t", "|"] = Field(",", description="What separates the columns of a CSV.")
    decimal: DecimalMark = Field(".", description="The decimal mark of numbers.")
    thousands: ThousandsMark = Field("", description="What separates thousands.")
    numbers: dict[Name, NumberNotation] = Field(
        default_factory=dict,
        description="Columns whose numbers are written otherwise, or have a unit, by name.",
    )
    encoding: Encoding = Field("utf-8", description="Encoding of the text, by its name in Python.")
    missing: Marks = Field(
        (),
        max_length=20,
        description="Texts of missing values besides those that are always read so: an empty cell, NA, null.",
        examples=[["-", "?"]],
    )
    not_missing: NotMissing = Field(
        (),
        description="Of the texts that are always read as missing values, those that are categories or "
        "classes of this data. Among numbers and dates, they stay missing.",
        examples=[["None"], ["NA"]],
    )
    header: bool = Field(True, description="Whether the first line has the names of the columns.")
    skip_rows: int = Field(0, ge=0, le=1_000, description="Lines above the header, or above the first row.")
    sheet: str | None = Field(
        None,
        min_length=1,
        max_length=31,
        description="The sheet of an Excel workbook; by default the first visible one with a table.",
    )
    partition: Name | None = Field(
        None, description="The column, or part of the path, that data is partitioned by."
    )
    window: Window = Field(
        1,
        description="Intervals that a run trains on, up to its own; all stands for every row before the end "
        "of its interval.",
    )
    timeout: float = Field(
        86400, gt=0, le=30 * 86400, description="Seconds that a run waits for a missing partition."
    )
    labels: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="Files in the spec's folder with delayed labels of logged requests: the columns "
        "request_id, row (if requests have several rows) and the target. Fields as in path.",
        examples=["labels.csv", "labels/{date}.csv"],
    )

    @property
    def pattern(self) -> str | None:
        """The path of the files, next to the spec or in the object store of the source."""
        return self.source.path if self.source else self.path

    @property
    def reading(self) -> dict[str, Any]:
        """The keys on how a file is written that differ from their defaults."""
        text = {"format", "delimiter", "decimal", "thousands", "encoding", "header", "skip_rows", "sheet"}
        keys = text | {"missing", "not_missing", "numbers"}
        return self.model_dump(include=keys, exclude_defaults=True)

    def notation(self, column: str) -> tuple[str, str, str]:
        """Return the decimal mark, the mark of thousands and the unit of a column's numbers."""
        of_column = self.numbers.get(column) or NumberNotation()
        decimal, thousands = of_column.decimal, of_column.thousands
        return decimal or self.decimal, self.thousands if thousands is None else thousands, of_column.unit

    @property
    def has_notation(self) -> bool:
        """Whether numbers are written otherwise than with a decimal point alone."""
        return self.decimal != "." or bool(self.thousands or self.numbers)

    @property
    def is_plain(self) -> bool:
        """Whether all keys on how text is written have their defaults."""
        written = (self.delimiter, self.encoding, self.header, self.skip_rows)
        return written == (",", "utf-8", True, 0) and not self.has_notation
