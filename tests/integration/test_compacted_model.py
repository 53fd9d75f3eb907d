"""A whole training run with ``[deploy] compact``, served by Triton."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dmls_core.serving import Deployment, connect
from dmls_core.serving.triton.addresses import PROTOCOLS
from dmls_core.training import train
from tests.integration.test_train import check_answers, request
from tests.services.triton_server import TritonProcess


def test_a_compacted_model_is_the_one_that_is_scored_written_and_served(
    tmp_path: Path, triton: TritonProcess
):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 3))
    y = x[:, 0] + x[:, 1] + rng.normal(0, 0.5, 1200)
    lines = ["a,b,c,y", *(",".join(f"{v:.5f}" for v in row) for row in np.column_stack([x, y]))]
    (tmp_path / "iris.csv").write_text("\n".join(lines) + "\n")
    spec = 'model = "random-forest-regressor"\nn_trials = 1\n[columns]\ntarget = "y"\n'
    (tmp_path / "spec.toml").write_text(spec + "[n_estimators]\nvalue = 150\n[deploy]\ncompact = true\n")
    notes: list[str] = []

    result = train(request(tmp_path), progress=notes.append)

    before, after = result["compact"]["before"], result["compact"]["after"]
    assert before["trees"] == 150
    assert after["nodes"] < 0.7 * before["nodes"]
    assert abs(after["score"] - before["score"]) < 0.03
    assert result["score"] == pytest.approx(after["score"], abs=1e-5)
    assert result["best_params"]["n_estimators"] == after["trees"]
    size = (tmp_path / "out/model/checkpoint.tl").stat().st_size
    assert size == after["bytes"] == result["size"]["bytes"]
    assert result["size"]["trees"] == after["trees"]
    assert f"{before['nodes']:,}" in (tmp_path / "out/model/card.html").read_text()
    assert any("compacted from 150 trees" in note for note in notes)
    check_answers(tmp_path / "out")

    golden = json.loads((tmp_path / "out/model/golden.json").read_text())
    expected = np.asarray(golden["expected"], np.float32)
    with triton.client() as client:
        deployed = Deployment(triton.repository, client, "lab.compact").deploy(tmp_path / "out/model")
        assert deployed.proof is not None
        assert deployed.proof.rows == len(expected)
        for protocol in PROTOCOLS:
            rows = np.asarray(golden["encoded"], np.float32)
            got = client.infer("lab.compact", rows, version=deployed.version, protocol=protocol)
            assert np.array_equal(got.reshape(expected.shape), expected)
        with connect("lab.compact", grpc=client.addresses["grpc"]) as model:
            assert np.array_equal(model.predict(golden["columns"])["prediction"], expected.ravel())
