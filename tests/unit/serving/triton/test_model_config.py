from __future__ import annotations

import json
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from dmls_core.data.encoder import CategoryFeature, DateFeature, Encoder, NumberFeature, Target
from dmls_core.errors import ServingError
from dmls_core.serving.formats.treelite.serving_format import TreeliteFormat
from dmls_core.serving.triton.model_config import (
    ModelShape,
    configured_versions,
    matrices,
    table_code,
    table_config,
    table_name,
)

ROOT = Path(__file__).parents[4]
names = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}\.[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)


@given(
    name=names,
    features=st.integers(1, 100_000),
    outputs=st.integers(2, 5_000),
    classifier=st.booleans(),
    versions=st.lists(st.integers(1, 10**9), min_size=1, max_size=4, unique=True),
    kind=st.sampled_from(["KIND_AUTO", "KIND_CPU"]),
)
def test_triton_parses_the_forest_configuration(name, features, outputs, classifier, versions, kind):
    shape = ModelShape(features, outputs if classifier else 1, classifier)
    text = TreeliteFormat().config(name, shape, versions=versions, kind=kind)
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert (config.name, config.backend) == (name, "fil")
    assert config.max_batch_size > 1
    assert config.HasField("dynamic_batching")
    assert config.dynamic_batching.max_queue_delay_microseconds == 0
    assert config.HasField("response_cache")
    assert not config.response_cache.enable
    (warmup,) = config.model_warmup
    assert (warmup.batch_size, list(warmup.inputs["input__0"].dims)) == (1, [features])
    assert warmup.inputs["input__0"].zero_data
    (given_,), (made,) = config.input, config.output
    assert (given_.name, given_.data_type, list(given_.dims)) == (
        "input__0",
        model_config_pb2.TYPE_FP32,
        [features],
    )
    assert (made.name, made.data_type, list(made.dims)) == (
        "output__0",
        model_config_pb2.TYPE_FP32,
        [shape.n_outputs],
    )
    assert list(config.version_policy.specific.versions) == versions
    (group,) = config.instance_group
    assert group.kind == getattr(model_config_pb2.ModelInstanceGroup, kind)
    flag = "true" if classifier else "false"
    assert {key: value.string_value for key, value in config.parameters.items()} == {
        "model_type": "treelite_checkpoint",
        "predict_proba": flag,
        "output_class": flag,
        "is_classifier": flag,
        "threshold": "0.5",
        "storage_type": "AUTO",
    }
    assert configured_versions(text) == tuple(versions)


@given(st.text(max_size=80))
def test_only_model_names_reach_a_configuration(name):
    allowed = text_format.Parse
    try:
        text = TreeliteFormat().config(name, ModelShape(2, 2, classifier=True), versions=[1])
    except ServingError:
        return
    assert allowed(text, model_config_pb2.ModelConfig()).name == name


@pytest.mark.parametrize(
    "name",
    [
        "iris",
        "lab.",
        ".iris",
        "lab.iris.2",
        "../lab.iris",
        "lab.ir/is",
        'lab.i"ris',
        "lab.iris\n",
        "Lab.iris",
        "lab.ïris",
    ],
)
def test_names_that_could_leave_their_folder_are_rejected(name):
    with pytest.raises(ServingError, match="not a model name"):
        TreeliteFormat().config(name, ModelShape(2, 2, classifier=True), versions=[1])


@pytest.mark.parametrize("versions", [[], [0], [1, -1]])
def test_versions_count_from_one(versions):
    with pytest.raises(ServingError, match="versions count from 1"):
        TreeliteFormat().config("lab.iris", ModelShape(2, 2, classifier=True), versions=versions)


@pytest.mark.parametrize(("features", "outputs", "classifier"), [(0, 2, True), (2, 1, True), (2, 0, False)])
def test_impossible_shapes_are_rejected(features, outputs, classifier):
    with pytest.raises(ServingError, match="cannot have this shape"):
        ModelShape(features, outputs, classifier)


def test_a_configuration_not_written_by_dmls_is_rejected():
    with pytest.raises(ServingError, match="no version_policy"):
        configured_versions('name: "lab.iris"\nversion_policy { latest { num_versions: 1 } }\n')


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
def test_triton_parses_the_table_configuration(features, labels, version):
    config = parsed(table_config("lab.iris", {version: encoder(features, labels)}, version=version, folder=7))
    assert (config.name, config.backend, config.platform) == ("lab.iris.table", "python", "")
    kinds = {
        name: model_config_pb2.TYPE_FP64 if kind is None else model_config_pb2.TYPE_STRING
        for name, kind in features.items()
    }
    joined = json.loads(config.parameters["matrices"].string_value)
    assert [(i.name, i.data_type, list(i.dims), i.optional) for i in config.input] == [
        *((name, kind, [1], True) for name, kind in kinds.items()),
        *((name, kinds[columns[0]], [len(columns)], True) for name, columns in joined.items()),
    ]
    assert sorted(name for columns in joined.values() for name in columns) == sorted(features)
    assert all(len({kinds[column] for column in columns}) == 1 for columns in joined.values())
    outputs = {output.name: list(output.dims) for output in config.output}
    if labels is None:
        assert outputs == {"value": [1], "version": [1], "notes": [1]}
    else:
        assert outputs == {"label": [1], "probabilities": [len(labels)], "version": [1], "notes": [1]}
    assert list(config.version_policy.specific.versions) == [7]
    assert not config.response_cache.enable
    assert config.parameters["forest"].string_value == "lab.iris"
    (about,) = json.loads(config.parameters["versions"].string_value)
    assert about == {"columns": list(features), "labels": labels and list(labels)}


def test_the_inputs_are_the_columns_of_both_versions():
    old = encoder({"size": None, "colour": ["red"], "code": None}, ("a", "b", "c"))
    new = encoder({"size": None, "weight": None, "code": ["x"]})
    config = parsed(table_config("lab.iris", {1: old, 2: new}, version=2, folder=2))
    joined = json.loads(config.parameters["matrices"].string_value)
    assert list(joined.values()) == [["size", "weight"], ["code"]]
    kinds = {i.name: model_config_pb2.DataType.Name(i.data_type) for i in config.input}
    assert {name: kind for name, kind in kinds.items() if name not in joined} == {
        "size": "TYPE_FP64",
        "weight": "TYPE_FP64",
        "code": "TYPE_STRING",
        "colour": "TYPE_STRING",
    }
    assert [list(o.dims) for o in config.output if o.name == "probabilities"] == [[-1]]
    versions = json.loads(config.parameters["versions"].string_value)
    assert [about["version"] for about in versions] == [2, 1]
    assert list(config.version_policy.specific.versions) == [2]


def test_a_version_with_another_kind_of_target_is_left_out():
    config = parsed(
        table_config(
            "lab.iris", {1: encoder({"a": None}, None), 2: encoder({"b": None})}, version=2, folder=2
        )
    )
    assert [i.name for i in config.input if list(i.dims) == [1]] == ["b", *matrices(encoder({"b": None}))]
    assert [about["columns"] for about in json.loads(config.parameters["versions"].string_value)] == [["b"]]


@pytest.mark.parametrize("name", ["iris", "lab.iris.table", "../lab.iris", 'lab.i"ris'])
def test_a_table_endpoint_needs_a_model_name(name):
    with pytest.raises(ServingError, match="not a model name"):
        table_name(name)
    with pytest.raises(ServingError, match="not a model name"):
        table_config(name, {1: encoder({"a": None})}, version=1, folder=1)


def test_versions_with_the_same_columns_and_labels_have_the_same_configuration():
    first = encoder({"größe": None, "colour": ["red"]})
    retrained = Encoder(
        (NumberFeature("größe", 9.0), CategoryFeature("colour", ("blue", "red"))), first.target
    )
    text = table_config("lab.iris", {1: first}, version=1, folder=1)
    assert table_config("lab.iris", {2: retrained, 1: first}, version=2, folder=1) == text
    assert table_config("lab.iris", {2: retrained}, version=2, folder=1) == text
    relabelled = Encoder(first.features, Target("y", ("b", "a")))
    assert table_config("lab.iris", {2: relabelled, 1: first}, version=2, folder=1) != text


def test_matrices_of_other_columns_have_other_names():
    orders = ({"a": None, "b": None}, {"b": None, "a": None}, {"a": None, "c": None}, {"a, b": None})
    assert len({name for features in orders for name in matrices(encoder(features))}) == 4


def test_dates_have_a_matrix_of_their_own():
    features = (DateFeature("sold"), CategoryFeature("colour", ("red",)), DateFeature("due"))
    dated = Encoder(features, Target("y", ("a", "b")))
    found = matrices(dated)
    assert list(found.values()) == [["colour"], ["sold", "due"]]
    # A client that knows the name of the categories' matrix can go on using it.
    assert next(iter(found)) == next(iter(matrices(Encoder(features[1:2], dated.target))))
    config = table_config("lab.iris", {1: dated}, version=1, folder=1)
    (_, dates) = found
    assert f'{{ name: "{dates}" data_type: TYPE_STRING dims: [ 2 ] optional: true }}' in config


def test_the_code_of_a_table_endpoint_is_complete():
    own = {path.name for path in (ROOT / "dmls_core/serving/endpoint").glob("*.py")}
    own -= {"__init__.py", "shared_process.py"}
    assert set(table_code({})) == own | {"encoder.py", "moments.py", "row_notes.py", "__pycache__"}
