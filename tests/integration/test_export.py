"""An exported repository answers in Triton as the deployed model does, and the ONNX file in ONNX Runtime."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from dmls_core.serving import Deployment
from dmls_core.serving.predict.export import MODELS, export_version
from dmls_core.serving.triton.model_config import table_name
from tests.support.table_endpoint import Served
from tests.support.trained_run import user_rows


@pytest.fixture
def served(triton, tmp_path):
    with triton.client() as client:
        yield Served(triton.repository, client, tmp_path / "run")


def test_an_exported_repository_answers_as_before(served, tmp_path):
    rows = user_rows(40)
    before = served.ask(rows)
    export_version(served.repository, served.name, "triton", tmp_path / "out")
    Deployment(served.repository, served.client, served.name).take_down()
    names = (served.name, table_name(served.name))
    served.client.unload(table_name(served.name))
    for name in names:
        shutil.rmtree(served.repository.root / name)
        shutil.copytree(tmp_path / "out" / MODELS / name, served.repository.root / name)
    for name in names:
        served.client.load(name)
    after = served.ask(rows)
    assert after["label"].tolist() == before["label"].tolist()
    np.testing.assert_array_equal(after["probabilities"], before["probabilities"])


def test_the_onnx_file_answers_as_the_endpoint(served, tmp_path):
    import onnxruntime

    done = export_version(served.repository, served.name, "onnx", tmp_path / "out")
    assert done["files"] == ["encoder.json", "model.onnx"]
    rows = user_rows(40)
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    (got,) = session.run(None, {"input__0": served.encoder.transform(rows)})
    np.testing.assert_allclose(got, served.ask(rows)["probabilities"], atol=1e-6)
    properties = session.get_modelmeta().custom_metadata_map
    assert (properties["model"], properties["version"]) == (served.name, "1")
