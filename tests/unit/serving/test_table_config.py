from __future__ import annotations

import json
import math
import subprocess
import sys

import pandas as pd
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from dmls_core.data.encoder import CategoryFeature, Encoder, NumberFeature, Target
from dmls_core.errors import DataError, ServingError
from dmls_core.serving.model_config import table_config, table_files, table_name
from dmls_core.serving.tensors import read_columns

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def encoder(features, labels=("a", "b")):
    made = [
        CategoryFeature(name, tuple(kind)) if kind is not None else NumberFeature(name, 0.0)
        for name, kind in features.items()
    ]
    return Encoder(tuple(made), Target("y", labels))


def parsed(text):
    return text_format.Parse(text, model_config_pb2.ModelConfig())


@given(
    features=st.dictionaries(texts, st.none() | st.lists(texts, max_size=3), min_size=1, max_size=6),
    labels=st.none() | st.lists(texts, min_size=2, max_size=5).map(tuple),
    version=st.integers(1, 10**9),
)
def test_triton_reads_what_was_meant(features, labels, version):
    config = parsed(table_config("lab.iris", {version: encoder(features, labels)}, version=version))
    assert (config.name, config.backend, config.platform) == ("lab.iris.table", "python", "")
    assert [(i.name, i.data_type, list(i.dims), i.optional) for i in config.input] == [
        (name, model_config_pb2.TYPE_FP64 if kind is None else model_config_pb2.TYPE_STRING, [1], True)
        for name, kind in features.items()
    ]
    outputs = {output.name: list(output.dims) for output in config.output}
    if labels is None:
        assert outputs == {"value": [1], "version": [1]}
    else:
        assert outputs == {"label": [1], "probabilities": [len(labels)], "version": [1]}
    assert list(config.version_policy.specific.versions) == [version]
    assert not config.response_cache.enable
    assert config.parameters["forest"].string_value == "lab.iris"
    (about,) = json.loads(config.parameters["versions"].string_value)
    assert about == {"version": version, "columns": list(features), "labels": labels and list(labels)}


def test_while_versions_change_the_inputs_are_those_of_both():
    old = encoder({"size": None, "colour": ["red"], "code": None}, ("a", "b", "c"))
    new = encoder({"size": None, "weight": None, "code": ["x"]})
    config = parsed(table_config("lab.iris", {1: old, 2: new}, version=2))
    kinds = {i.name: model_config_pb2.DataType.Name(i.data_type) for i in config.input}
    assert kinds == {
        "size": "TYPE_FP64",
        "weight": "TYPE_FP64",
        "code": "TYPE_STRING",
        "colour": "TYPE_STRING",
    }
    assert [list(o.dims) for o in config.output if o.name == "probabilities"] == [[-1]]
    versions = json.loads(config.parameters["versions"].string_value)
    assert [about["version"] for about in versions] == [2, 1]
    assert list(config.version_policy.specific.versions) == [2]


def test_a_version_that_predicts_something_else_is_left_out():
    config = parsed(
        table_config("lab.iris", {1: encoder({"a": None}, None), 2: encoder({"b": None})}, version=2)
    )
    assert [i.name for i in config.input] == ["b"]
    assert [about["version"] for about in json.loads(config.parameters["versions"].string_value)] == [2]


@pytest.mark.parametrize("name", ["iris", "lab.iris.table", "../lab.iris", 'lab.i"ris'])
def test_only_a_models_name_gets_an_endpoint(name):
    with pytest.raises(ServingError, match="not a model name"):
        table_name(name)
    with pytest.raises(ServingError, match="not a model name"):
        table_config(name, {1: encoder({"a": None})}, version=1)


def test_a_version_holds_our_code_and_the_encoder_as_data():
    about = encoder({"größe": None, "__import__('os')": ["x"]}).as_json()
    files = table_files(about)
    assert sorted(files) == ["encoder.json", "encoder.py", "inference_log.py", "model.py"]
    assert json.loads(files["encoder.json"]) == about
    others = table_files(encoder({"b": None}).as_json())
    assert all(files[name] == others[name] for name in ("model.py", "inference_log.py", "encoder.py"))


LIGHT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "polars", "treelite", "sklearn", "pydantic", "mlflow",
                                      "boto3", "typer", "geventhttpclient", "gevent", "airflow", "scipy"):
            raise ImportError(f"{name} must not be needed")

sys.meta_path.insert(0, Refuse())
from dmls_core.serving import connect
from dmls_core.errors import ServingError
try:
    connect("lab.iris", grpc="127.0.0.1:9", timeout=2)
except ServingError as error:
    print(error)
"""


def test_the_client_needs_numpy_and_tritonclient_alone():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=120)
    assert "127.0.0.1:9 does not answer" in done.stdout, done.stderr


def test_a_frame_whose_columns_have_numbers_for_names():
    frame = pd.DataFrame([[1, 2.5], [3, None]])
    found = read_columns(frame, {"1": "TYPE_FP64", "0": "TYPE_STRING"}, [["0", "1"]])
    assert found["0"].tolist() == ["1", "3"]
    assert found["1"].tolist()[0] == 2.5
    assert math.isnan(found["1"][1])
    with pytest.raises(DataError, match="'0' occurs more than once"):
        read_columns({0: [1], "0": [2]}, {"0": "TYPE_FP64"}, [["0"]])
