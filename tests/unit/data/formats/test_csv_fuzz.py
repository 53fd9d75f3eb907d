"""No file gives anything but a table or a clear error, and no table differs from what the file says."""

from __future__ import annotations

import csv
import io

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dmls_core.data.encoder import MISSING, category_text
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.table import Table
from dmls_core.errors import DataError
from dmls_core.spec import Columns

COLUMNS = Columns(target="y")
tasks = st.sampled_from(["classification", "regression"])
hostile = st.lists(
    st.sampled_from(
        [b"a", b"b", b"y", b",", b",", b"\n", b"\n", b"\r\n", b'"', b"1", b"2.5", b"NA", b"inf", b"x"]
    )
    | st.binary(min_size=1, max_size=2),
    max_size=60,
).map(b"".join)


def _read(folder, content: bytes, task, columns=COLUMNS) -> Table | DataError:
    path = folder / "data.csv"
    path.write_bytes(content)
    try:
        return read_table([path], columns, task)
    except DataError as error:
        return error


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    hostile,
    st.sampled_from(["a,y\n", "a,b,y\n1,2,x\n2,3,z\n", ""]),
    tasks,
)
@example(b'1,5" pipe,0\n2,6" pipe,1\n', "a,b,y\n", "classification")
@example(b"1,x\r2,z\r", "a,y\n", "classification")
@example(b"\x00,x\n1,z\n", "a,y\n", "classification")
def test_hostile_bytes(tmp_path, content, head, task):
    found = _read(tmp_path, head.encode() + content, task)
    if isinstance(found, DataError):
        assert all(issue.message for issue in found.issues)
    else:
        assert found.matrix.shape == (len(found.target), len(found.columns))
        assert not np.isinf(found.matrix).any()


cells = st.sampled_from(
    ["1", "2", "-3.5", "", "NA", " 4 ", "1e2", "red", "blue,ish", 'a "quote"', "two\nlines", "ü"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(cells, cells, st.sampled_from(["no", "yes", "NA"])), min_size=2, max_size=20))
def test_as_the_csv_module_reads_it(tmp_path, rows):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("a", "b", "y"), *rows])
    columns = Columns(target="y", categorical=["a", "b"])
    table = _read(tmp_path, text.getvalue().encode(), "classification", columns)
    kept = [row for row in rows if row[2] not in MISSING]
    if isinstance(table, DataError):
        assert len({row[2] for row in kept}) < 2 or any(
            all(row[position].strip() in MISSING for row in rows) for position in (0, 1)
        )
        return
    assert table.raw(np.arange(table.n_rows)) == {
        name: [category_text(row[position]) for row in kept] for position, name in enumerate("ab")
    }
    assert [table.labels[index] for index in table.target] == [row[2] for row in kept]
