from __future__ import annotations

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from dmls_core.errors import ServingError
from dmls_core.serving.model_config import ModelShape, configured_versions, fil_config

names = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}\.[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)


@given(
    name=names,
    features=st.integers(1, 100_000),
    outputs=st.integers(2, 5_000),
    classifier=st.booleans(),
    versions=st.lists(st.integers(1, 10**9), min_size=1, max_size=4, unique=True),
    kind=st.sampled_from(["KIND_AUTO", "KIND_CPU"]),
)
def test_triton_reads_what_was_meant(name, features, outputs, classifier, versions, kind):
    shape = ModelShape(features, outputs if classifier else 1, classifier)
    text = fil_config(name, shape, versions=versions, kind=kind)
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
def test_no_other_name_reaches_a_configuration(name):
    allowed = text_format.Parse
    try:
        text = fil_config(name, ModelShape(2, 2, classifier=True), versions=[1])
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
def test_names_that_could_leave_their_place_are_refused(name):
    with pytest.raises(ServingError, match="not a model name"):
        fil_config(name, ModelShape(2, 2, classifier=True), versions=[1])


@pytest.mark.parametrize("versions", [[], [0], [1, -1]])
def test_versions_count_from_one(versions):
    with pytest.raises(ServingError, match="versions count from 1"):
        fil_config("lab.iris", ModelShape(2, 2, classifier=True), versions=versions)


@pytest.mark.parametrize(("features", "outputs", "classifier"), [(0, 2, True), (2, 1, True), (2, 0, False)])
def test_impossible_shapes_are_refused(features, outputs, classifier):
    with pytest.raises(ServingError, match="cannot have this shape"):
        ModelShape(features, outputs, classifier)


def test_a_foreign_configuration_is_not_guessed_at():
    with pytest.raises(ServingError, match="no version_policy"):
        configured_versions('name: "lab.iris"\nversion_policy { latest { num_versions: 1 } }\n')
