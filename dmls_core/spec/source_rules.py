"""Rules of ``[data.source]`` that pydantic cannot express."""

from __future__ import annotations

import re

from dmls_core.spec.data_table import PARAMETER, Data, Source
from dmls_core.spec.issues import IssueCollector
from dmls_core.spec.partitions import FIELDS, parse_names
from dmls_core.spec.tables import Columns, Schedule

_READS = re.compile(r"\s*(select|with)\b", re.IGNORECASE)

_LOCAL = ("file", "local", "memory")
"""Schemes of files on Airflow's workers."""

_PARAMETERS = ("start", "end")

_SOURCE_KEYS = ("table", "query", "path", "delta", "iceberg")

_VERSIONS = {"version": "delta", "snapshot": "iceberg"}
"""The key of a version, and the kind of table that has it."""

_TABLE = re.compile(r"[^\s./:]+(\.[^\s./:]+)+")
"""The name of a table in a catalog, with its namespaces."""


def check_source(source: Source, data: Data, issues: IssueCollector) -> None:
    """Check that a source names one thing to read, and that its query or path can be read."""
    path = ("data", "source")
    keys = [key for key in _SOURCE_KEYS if getattr(source, key) is not None]
    if len(keys) != 1:
        key_names = f"{', '.join(_SOURCE_KEYS[:-1])} and {_SOURCE_KEYS[-1]}"
        key_list = " and ".join(keys) or "none of them"
        issues.add(path, f"must have one of {key_names}", expected="one of them", hint=f"it has {key_list}")
    if data.path is not None:
        hint = "remove it: the source has the data"
        issues.add(("data", "path"), "cannot be combined with [data.source]", found=data.path, hint=hint)
    if data.format is not None:
        hint = "remove it: the names of the files show their formats" if source.path else "remove it"
        issues.add(("data", "format"), "cannot be combined with [data.source]", found=data.format, hint=hint)
    elif source.path is None and (written := data.reading.keys() - {"missing", "not_missing"}):
        source_type = "a database" if source.lake is None else "a table"
        hint = "remove it: a table has types"
        issues.add(
            ("data", min(written)), f"says how files are written, but the source is {source_type}", hint=hint
        )
    if source.query is not None:
        _check_query(source.query, issues)
    if source.path is not None:
        _check_path(source.path, issues)
    _check_lake(source, issues)


def _check_query(query: str, issues: IssueCollector) -> None:
    path = ("data", "source", "query")
    if not _READS.match(query):
        issues.add(path, "must begin with SELECT or WITH", found=query, hint="a query only reads")
    if ";" in query.strip().removesuffix(";"):
        hint = "remove the semicolon; in a text, write CHR(59) or make a view"
        issues.add(path, "must be one statement", found=query, hint=hint)
    unknown = sorted(set(PARAMETER.findall(query)) - set(_PARAMETERS))
    if unknown:
        hint = r"write a colon that is no parameter as \:"
        issues.add(path, f"has the unknown parameter :{unknown[0]}", expected=":start and :end", hint=hint)


def _check_lake(source: Source, issues: IssueCollector) -> None:
    if source.delta is not None:
        _check_address(source.delta.removesuffix("/"), "delta", issues)
    if source.iceberg is not None:
        _check_iceberg(source.iceberg, issues)
    for key, table_format in _VERSIONS.items():
        if (number := getattr(source, key)) is not None and getattr(source, table_format) is None:
            issues.add(("data", "source", key), f"needs {table_format}", found=str(number), hint="remove it")


def _check_iceberg(table: str, issues: IssueCollector) -> None:
    if "://" not in table:
        if not _TABLE.fullmatch(table):
            expected = 'its namespace and name, such as "sales.orders", or an address'
            issues.add(("data", "source", "iceberg"), "must name a table", found=table, expected=expected)
    elif not table.endswith(".metadata.json"):
        expected = "a file such as s3://lake/orders/metadata/v3.metadata.json"
        issues.add(
            ("data", "source", "iceberg"), "must be the address of metadata", found=table, expected=expected
        )
    else:
        _check_address(table, "iceberg", issues)


def _check_address(address: str, name: str, issues: IssueCollector) -> bool:
    """Check that an address is one of an object store, and names its bucket."""
    key = ("data", "source", name)
    scheme, _, rest = address.partition("://")
    parts = rest.removesuffix("/").split("/")
    if scheme in _LOCAL:
        hint = "upload the file next to the spec, or name an object store"
        issues.add(key, "cannot be a file on Airflow's machines", found=address, hint=hint)
    elif {"", ".", ".."} & set(parts) or "\\" in address or "::" in address or not address.isprintable():
        expected = "an address such as s3://bucket/folder/"
        issues.add(
            key, "must be an address without empty or relative parts", found=address, expected=expected
        )
    elif "@" in parts[0]:
        hint = "the connection has the account"
        issues.add(key, "must name a bucket or container alone", found=address, expected="no @", hint=hint)
    elif any(character in parts[0] for character in "*?{}"):
        issues.add(key, "must name one bucket", found=address, expected="no pattern in the bucket's name")
    else:
        return True
    return False


def _check_path(path: str, issues: IssueCollector) -> None:
    key = ("data", "source", "path")
    if not _check_address(path, "path", issues):
        return
    if path.endswith("/") and any(character in path for character in "*?{}"):
        expected = "the names of files, such as s3://bucket/dt={date}/*.parquet"
        issues.add(key, "must not end with a slash if it is a pattern", found=path, expected=expected)
    else:
        try:
            parse_names(path)
        except ValueError as error:
            fields = ", ".join(f"{{{field}}}" for field in FIELDS)
            issues.add(key, str(error), found=path, expected=f"* and ?, or fields from {fields}")


def check_source_intervals(
    source: Source, columns: Columns, schedule: Schedule | None, issues: IssueCollector
) -> None:
    """Check that the runs of a job with a source have the intervals that they need."""
    if schedule is not None and schedule.on is not None:
        hint = 'write cron = "@daily": each run waits for its partition'
        issues.add(("schedule", "on"), "cannot watch a source", found=schedule.on, hint=hint)
    if source.bound and columns.time is None and (schedule is None or schedule.cron is None):
        hint = "write [schedule] cron, or name the column with the time of a row: [columns] time"
        issues.add(("data", "source", "query"), "has :start or :end, but runs have no interval", hint=hint)
