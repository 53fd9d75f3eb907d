"""No damaged file ends the process that checks it, or is valid for admission and not for a trainer."""

from __future__ import annotations

from argparse import Namespace

import pytest

from tests.bench.damaged_data import measure


@pytest.mark.parametrize(
    "files", [6, pytest.param(60, marks=pytest.mark.nightly("60 of each format take 12 s"))]
)
def test_a_damaged_file_is_read_or_refused(files):
    for row in measure(Namespace(files=files, seed=1)):
        assert row["read"] + row["refused"] == files, row
        assert row["refused"] > 0, "some files are damaged enough"
