"""The rules of ``[data.source]``."""

from __future__ import annotations

import pytest

from dmls_core.errors import SpecError
from dmls_core.models import load_spec

SPEC = """
model = "random-forest-classifier"
[columns]
target = "y"
{more}
[data.source]
connection = "warehouse"
{source}
"""
WEEKLY = '[schedule]\ncron = "@weekly"'


def load(source: str, more: str = ""):
    return load_spec(SPEC.format(source=source, more=more).encode())


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ('table = "sales.orders"', "warehouse: sales.orders"),
        ('query = "SELECT 1; "', "warehouse: the query"),
        ("query = \"with a as (select b::date, '12:30' from t) select * from a\"", "warehouse: the query"),
        ('path = "s3://lake/orders/dt={date}/*.parquet"', "warehouse: s3://lake/orders/dt={date}/*.parquet"),
        ('delta = "s3://lake/orders"\nversion = 0', "warehouse: s3://lake/orders"),
        ('iceberg = "sales.orders"\nsnapshot = 9007199254740993', "warehouse: sales.orders"),
        ('iceberg = "s3://lake/t/v1.metadata.json"', "warehouse: s3://lake/t/v1.metadata.json"),
    ],
)
def test_a_source_is_a_table_a_query_or_a_path(source, label):
    spec = load(source)
    assert spec.data.source.label == label
    assert type(spec).from_json(spec.as_json()) == spec
    assert spec.chosen_by_run == ("{date}" in source)


def test_a_spec_without_a_source_keeps_its_hash():
    spec = load_spec(b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n')
    assert "source" not in spec.as_json()["data"]
    keys = {"connection", "table", "query", "path"}
    assert load('table = "orders"').as_json()["data"]["source"].keys() == keys


def test_a_scheduled_run_reads_a_lake_table_as_it_was_at_the_end_of_its_interval():
    assert load('delta = "s3://lake/orders"', WEEKLY).data.source.has_history


@pytest.mark.parametrize(
    ("source", "more", "message"),
    [
        ("", "", "data.source: must have one of table, .* and iceberg .*it has none of them"),
        ('table = "a"\npath = "s3://b/c/"', "", "must have one of .*it has table and path"),
        ('query = "DELETE FROM a"', "", "data.source.query: must begin with SELECT or WITH"),
        ('query = "SELECT 1; DROP TABLE a"', "", "data.source.query: must be one statement"),
        ('query = "SELECT :day"', WEEKLY, "has the unknown parameter :day .*expected :start and :end"),
        ('query = "SELECT :start"', "", "has :start or :end, but runs have no interval .*cron"),
        ('path = "file://etc/passwd"', "", "data.source.path: cannot be a file on Airflow's machines"),
        ('path = "s3://lake/../a/"', "", "without empty or relative parts"),
        ('path = "filecache::s3://lake/a/"', "", "must be an address such as s3://bucket/folder/"),
        ('path = "s3://{date}/a/"', "", "must name one bucket"),
        ('path = "s3://lake/dt={date}/"', "", "must not end with a slash if it is a pattern"),
        ('path = "s3://lake/{hour}/a.csv"', "", "data.source.path: has {hour} without {day}"),
        ('table = "a"', '[data]\npath = "a.csv"', r"data.path: cannot be combined with \[data.source\]"),
        (
            'path = "s3://lake/a/"',
            '[data]\nformat = "csv"',
            r"data.format: cannot be combined .*their formats",
        ),
        (
            'table = "a"',
            '[data]\ndecimal = ","',
            "data.decimal: says how files are written, but .*a database",
        ),
        ('delta = "file://etc/lake/"', "", "data.source.delta: cannot be a file on Airflow's machines"),
        ('delta = "s3://lake*/a"', "", "data.source.delta: must name one bucket"),
        ('iceberg = "orders"', "", "data.source.iceberg: must name a table .*sales.orders"),
        ('iceberg = "s3://lake/orders/"', "", "must be the address of metadata"),
        ('delta = "s3://lake/a"\nsnapshot = 1', "", "data.source.snapshot: needs iceberg"),
        (
            'delta = "s3://lake/a"\nversion = 1',
            WEEKLY,
            "does not define which rows .*remove the version",
        ),
        ('table = "a"', WEEKLY, "schedule: does not define which rows .*query with :end"),
        (
            'path = "s3://lake/{date}.csv"',
            '[schedule]\non = "data"',
            "schedule.on: cannot watch a source .*cron",
        ),
    ],
)
def test_what_is_wrong_with_a_source(source, more, message):
    with pytest.raises(SpecError, match=message):
        load(source, more)
