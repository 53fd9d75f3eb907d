"""No damaged file ends the process that checks it, or is valid for admission and not for a trainer."""

from __future__ import annotations

from argparse import Namespace

from tests.bench.damaged_data import measure


def test_a_damaged_file_is_read_or_refused():
    for row in measure(Namespace(files=60, seed=1)):
        assert row["read"] + row["refused"] == 60, row
        assert row["refused"] > 0, "some files are damaged enough"
