from __future__ import annotations

import json

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from dmls_core.errors import ServingError
from dmls_core.serving import deploy, go_live, measure, rollback, stage
from dmls_core.serving.benchmark import MARGIN, OTHERS, choose
from dmls_core.serving.model_config import SIMPLEST, Scaling
from dmls_core.serving.options import Choice, Measured, choice_of, note_choice
from tests.model_folder import toy_model_folder

NAME = "lab.iris"
UNBATCHED, TWO = OTHERS


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
        return Measured(scaling, rates)


def test_the_simplest_setting_stays_where_the_difference_is_noise():
    ask = Played(simplest=(100.0, 130.0), unbatched=(150.0, 400.0), two=(162.0, 170.0))
    choice = choose(ask, OTHERS)
    assert choice.scaling == SIMPLEST
    assert [found.scaling for found in choice.measured] == [SIMPLEST, UNBATCHED, TWO]
    assert choice.text == f"1 instance: nothing else answered {MARGIN:g} times as many requests"


def test_one_that_is_better_in_its_worst_part_is_taken_if_it_is_so_twice():
    ask = Played(simplest=(100.0, 130.0), unbatched=(90.0, 90.0), two=(163.0, 170.0))
    choice = choose(ask, OTHERS)
    assert choice.scaling == TWO
    assert choice.text == "2 instances: it answered 1.3 times as many requests"
    assert ask.asked == [SIMPLEST, UNBATCHED, TWO, SIMPLEST]


def test_a_machine_that_was_busy_for_a_moment_decides_nothing():
    ask = Played(simplest=[(100.0,), (200.0,)], unbatched=(90.0,), two=(201.0,))
    assert choose(ask, OTHERS).scaling == SIMPLEST


@pytest.mark.parametrize(
    ("unbatched", "seconds", "told"),
    [(ServingError("no memory left"), 60.0, "no memory left"), ((1e9,), 0.0, "the time was up")],
)
def test_what_cannot_be_measured_is_not_taken(unbatched, seconds, told):
    choice = choose(Played(simplest=(100.0,), unbatched=unbatched, two=(1e9,)), OTHERS, seconds)
    assert choice.scaling == SIMPLEST
    assert choice.text.endswith(told)


def test_a_choice_is_the_same_after_it_was_written():
    choice = Choice(TWO, "why", (Measured(SIMPLEST, (1.5, 2.0)), Measured(TWO, ())))
    assert Choice.from_json(json.loads(json.dumps(choice.as_json()))) == choice


def configured(repository, model):
    """Return instances and batching of a forest and of its table endpoint."""
    found = []
    for name in (model, f"{model}.table"):
        text = (repository.root / name / "config.pbtxt").read_text()
        config = text_format.Parse(text, model_config_pb2.ModelConfig())
        found.append(Scaling(config.instance_group[0].count, config.HasField("dynamic_batching")))
    assert found[0] == found[1]
    return found[0]


def test_each_version_is_served_as_it_was_chosen_for_it(repository, triton, tmp_path):
    deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a"))
    assert configured(repository, NAME) == SIMPLEST
    staged = stage(repository, triton, NAME, toy_model_folder(tmp_path / "b", checkpoint=b"b"))
    chosen = Choice(Scaling(2, batching=False), "measured")
    note_choice(repository.store, NAME, staged.version, chosen, repository.versions(NAME))
    assert configured(repository, NAME) == SIMPLEST, "what is served is not touched"
    go_live(repository, triton, NAME, staged.version)
    assert configured(repository, NAME) == chosen.scaling
    rollback(repository, triton, NAME)
    assert configured(repository, NAME) == SIMPLEST
    rollback(repository, triton, NAME)
    assert configured(repository, NAME) == chosen.scaling


def test_a_repeated_step_takes_what_was_chosen(repository, triton, tmp_path):
    version = deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a")).version
    chosen = Choice(TWO, "measured before")
    note_choice(repository.store, NAME, version, chosen, repository.versions(NAME))
    loads = triton.loads
    assert measure(repository, triton, NAME, version) == chosen
    assert triton.loads == loads, "there is no candidate any more, and nothing was asked"


def test_versions_that_are_gone_are_forgotten(repository):
    for version in (1, 2, 3):
        note_choice(repository.store, NAME, version, Choice(TWO), known=(2, 3))
    assert choice_of(repository.store, NAME, 1) == Choice()
    assert choice_of(repository.store, NAME, 2) == Choice(TWO)
