from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dmls_core.data.table.reader import read_table
from dmls_core.data.table.table import Table
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.settings import DataLimits
from dmls_core.spec import Columns

Read = Callable[..., Table]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write a CSV and read it: ``read("a,y\\n1,x\\n")``; columns and limits by name."""

    def reader(content, task="classification", limits=None, **columns) -> Table:
        path = tmp_path / "data.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_table([path], Columns(**{"target": "y"} | columns), task, limits=limits)

    return reader


@pytest.fixture
def issues(read: Read) -> Callable[..., tuple[ValidationIssue, ...]]:
    """Like ``read``, for data that must be refused."""

    def reader(content, task="classification", limits: DataLimits | None = None, **columns):
        with pytest.raises(DataError) as caught:
            read(content, task, limits, **columns)
        return caught.value.issues

    return reader
