from __future__ import annotations

import json

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from dmls_core.errors import ServingError
from dmls_core.serving import choose_scaling
from dmls_core.serving.deployment.benchmark import ALTERNATIVES, MARGIN, compare_scalings
from dmls_core.serving.repository.options import (
    ScalingChoice,
    ScalingMeasurement,
    read_scaling_choice,
    write_scaling_choice,
)
from dmls_core.serving.triton.model_config import SIMPLEST, Scaling
from tests.support.model_folder import toy_model_folder

NAME = "lab.iris"
UNBATCHED, TWO = ALTERNATIVES


class Played:
    """Answers with rates that are laid down, one after the other for each setting."""

    def __init__(self, **rates):
        self._rates = {SIMPLEST: rates["simplest"], UNBATCHED: rates["unbatched"], TWO: rates["two"]}
        self.asked = []

    def __call__(self, scaling, seconds):
        assert seconds > 0
        self.asked.append(scaling)
        found = self._rates[scaling]
        rates = found.pop(0) if isinstance(found, list) else found
        if isinstance(rates, Exception):
            raise rates
        return ScalingMeasurement(scaling, rates)


def test_the_simplest_scaling_stays_if_the_difference_is_noise():
    ask = Played(simplest=(100.0, 130.0), unbatched=(150.0, 400.0), two=(162.0, 170.0))
    choice = compare_scalings(ask, ALTERNATIVES)
    assert choice.scaling == SIMPLEST
    assert [found.scaling for found in choice.measured] == [SIMPLEST, UNBATCHED, TWO]
    assert choice.text == f"1 instance: no other scaling answered {MARGIN:g} times as many requests"


def test_a_scaling_that_is_better_in_its_worst_window_twice_is_chosen():
    ask = Played(simplest=(100.0, 130.0), unbatched=(90.0, 90.0), two=(163.0, 170.0))
    choice = compare_scalings(ask, ALTERNATIVES)
    assert choice.scaling == TWO
    assert choice.text == "2 instances: it answered 1.3 times as many requests"
    assert ask.asked == [SIMPLEST, UNBATCHED, TWO, SIMPLEST]


def test_a_momentarily_busy_machine_decides_nothing():
    ask = Played(simplest=[(100.0,), (200.0,)], unbatched=(90.0,), two=(201.0,))
    assert compare_scalings(ask, ALTERNATIVES).scaling == SIMPLEST


@pytest.mark.parametrize(
    ("unbatched", "seconds", "reason"),
    [(ServingError("no memory left"), 60.0, "no memory left"), ((1e9,), 0.0, "the time limit was reached")],
)
def test_a_scaling_that_cannot_be_measured_is_not_chosen(unbatched, seconds, reason):
    choice = compare_scalings(
        Played(simplest=(100.0,), unbatched=unbatched, two=(1e9,)), ALTERNATIVES, seconds
    )
    assert choice.scaling == SIMPLEST
    assert choice.text.endswith(reason)


def test_a_choice_survives_json():
    choice = ScalingChoice(
        TWO, "why", (ScalingMeasurement(SIMPLEST, (1.5, 2.0)), ScalingMeasurement(TWO, ()))
    )
    assert ScalingChoice.from_json(json.loads(json.dumps(choice.as_json()))) == choice


def configured(repository, model):
    """Return instances and batching of a forest and of its table endpoint."""
    found = []
    for name in (model, f"{model}.table"):
        text = (repository.root / name / "config.pbtxt").read_text()
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
        found.append(Scaling(config.instance_group[0].count, config.HasField("dynamic_batching")))
    assert found[0] == found[1]
    return found[0]


def test_each_version_is_served_with_its_chosen_scaling(deployment, repository, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    assert configured(repository, NAME) == SIMPLEST
    staged = deployment.stage(toy_model_folder(tmp_path / "b", checkpoint=b"b"))
    chosen = ScalingChoice(Scaling(2, batching=False), "measured")
    write_scaling_choice(repository.store, NAME, staged.version, chosen, repository.versions(NAME))
    assert configured(repository, NAME) == SIMPLEST, "what is served is not touched"
    deployment.promote(staged.version)
    assert configured(repository, NAME) == chosen.scaling
    deployment.rollback()
    assert configured(repository, NAME) == SIMPLEST
    deployment.rollback()
    assert configured(repository, NAME) == chosen.scaling


def test_the_next_version_of_similar_size_takes_the_scaling_over(deployment, repository, triton, tmp_path):
    first = deployment.deploy(toy_model_folder(tmp_path / "a", checkpoint=b"a" * 100))
    write_scaling_choice(repository.store, NAME, first.version, ScalingChoice(TWO, "measured"), (1,))
    repository.serve(NAME, 1)
    staged = deployment.stage(toy_model_folder(tmp_path / "b", checkpoint=b"b" * 199))
    loads = triton.loads
    choice = choose_scaling(deployment, staged.version)
    assert choice.text == "2 instances: as version 1, with the same columns and a forest of similar size"
    assert triton.loads == loads
    deployment.promote(staged.version)
    assert configured(repository, NAME) == TWO
    deployment.stage(toy_model_folder(tmp_path / "c", checkpoint=b"c" * 399))
    assert f"{NAME}.candidate.table" in triton.served, "a larger forest is measured"


def test_a_repeated_step_keeps_the_choice(deployment, repository, triton, tmp_path):
    version = deployment.deploy(toy_model_folder(tmp_path / "a")).version
    chosen = ScalingChoice(TWO, "measured before")
    write_scaling_choice(repository.store, NAME, version, chosen, repository.versions(NAME))
    loads = triton.loads
    assert choose_scaling(deployment, version) == chosen
    assert triton.loads == loads, "there is no candidate any more, and nothing was asked"


def test_choices_of_removed_versions_are_removed(repository):
    for version in (1, 2, 3):
        write_scaling_choice(repository.store, NAME, version, ScalingChoice(TWO), versions=(2, 3))
    assert read_scaling_choice(repository.store, NAME, 1) == ScalingChoice()
    assert read_scaling_choice(repository.store, NAME, 2) == ScalingChoice(TWO)
