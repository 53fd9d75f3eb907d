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
