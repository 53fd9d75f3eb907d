"""Dates from the data to Triton: the table endpoint reads them as training does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from dmls_core.data.encoder import Encoder
from dmls_core.errors import DataError
from dmls_core.serving import Deployment, connect
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.triton.model_config import matrices, table_name
from dmls_core.serving.triton.tensors import table_tensors
from dmls_core.training import TrainRequest, train

SPEC = """model = "{model}"
n_trials = 1
[columns]
target = "late"
dates = ["sold", "due", "opened"]
date_order = "day-first"
[n_estimators]
value = 20
"""


@pytest.mark.parametrize(
    "model",
    [
        "random-forest-classifier",
        pytest.param("lightgbm-classifier", marks=pytest.mark.nightly("`make test` does it with a forest")),
    ],
)
def test_dates_are_served_as_they_were_trained(triton, tmp_path, model):
    draw, name = np.random.default_rng(0), f"lab.dates-{model.partition('-')[0]}"
    times = [
        datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=int(m)) for m in draw.integers(0, 600_000, 600)
    ]
    rows = {
        "sold": [f"{at:%d.%m.%Y %H:%M}" for at in times],
        "size": draw.normal(size=600).round(3).tolist(),
        "due": ["" if at.day == 1 else f"{at:%d/%m/%Y}" for at in times],
        "opened": ["" if at.day == 2 else f"{at:%I:%M %p}" for at in times],
    }
    late = [at.weekday() > 3 and at.hour > 11 for at in times]
    pd.DataFrame(rows | {"late": late}).to_csv(tmp_path / "data.csv", index=False)
    (tmp_path / "spec.toml").write_text(SPEC.format(model=model))
    request = TrainRequest(str(tmp_path / "spec.toml"), (str(tmp_path / "data.csv"),), str(tmp_path / "out"))
    result = train(request)
    assert result["score"] > 0.9
    assert list(result["importances"])[:5] == [
        f"sold ({part})" for part in ("days", "month", "day", "weekday", "hour")
    ]
    folder = tmp_path / "out/model"
    encoder = Encoder.from_json(json.loads((folder / "encoder.json").read_text()))
    expected = checkpoint.predict(checkpoint.load(folder / "checkpoint.tl"), encoder.transform(rows))

    with triton.client(timeout=20.0) as client:
        Deployment(triton.repository, client, name).deploy(folder)
        # The dates may come by name, or in one matrix.
        columns = table_tensors(encoder, rows)
        joined = {key: np.hstack([columns[c] for c in names]) for key, names in matrices(encoder).items()}
        assert [key.partition("-")[0] for key in joined] == ["numbers", "dates"]
        for tensors in (columns, joined):
            answer = client.infer_tensors(table_name(name), tensors)
            assert np.array_equal(answer.as_numpy("probabilities"), expected.astype(np.float32))
        with connect(name, grpc=client.addresses["grpc"]) as endpoint:
            frame = pd.DataFrame(rows)
            named = [f"probability_{label}" for label in endpoint.labels]
            found = endpoint.predict(frame)[named].to_numpy(np.float32)
            assert np.array_equal(found, expected.astype(np.float32))
            # Texts, ISO texts and times of pandas are the same dates.
            for convert in (str, pd.Timestamp):
                same = endpoint.predict(frame.assign(sold=[convert(at) for at in times]))
                assert np.array_equal(same[named].to_numpy(np.float32), found)
            with pytest.raises(DataError, match="column 'due', row 2: 'soon' is not a day-first date"):
                endpoint.predict(frame[:2].assign(due=["", "soon"]))
