from __future__ import annotations

import math

import pandas as pd
import pytest

from dmls_core.errors import DataError
from dmls_core.serving.triton.tensors import read_columns


def test_column_names_may_be_numbers():
    frame = pd.DataFrame([[1, 2.5], [3, None]])
    found = read_columns(frame, {"1": "TYPE_FP64", "0": "TYPE_STRING"}, [["0", "1"]])
    assert found["0"].tolist() == ["1", "3"]
    assert found["1"].tolist()[0] == 2.5
    assert math.isnan(found["1"][1])
    with pytest.raises(DataError, match="'0' occurs more than once"):
        read_columns({0: [1], "0": [2]}, {"0": "TYPE_FP64"}, [["0"]])


def test_numbers_are_those_of_the_training():
    types = {"a": "TYPE_FP64", "b": "TYPE_FP64"}
    frame = {"a": ["1_000", "2", "inf"], "b": [True, False, 1e39]}
    with pytest.raises(DataError) as raised:
        read_columns(frame, types, [["a", "b"]], booleans=["a"])
    assert [str(issue).split(":")[0] for issue in raised.value.issues] == [
        "column 'a', row 1",
        "column 'b', row 1",
        "column 'b', row 2",
        "column 'a', row 3",
        "column 'b', row 3",
    ]
    found = read_columns({"a": ["1", None], "b": [True, False]}, types, [["a", "b"]])
    assert found["b"].tolist() == [1, 0]
