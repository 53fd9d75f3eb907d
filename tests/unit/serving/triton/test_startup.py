from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from dmls_core.errors import PlatformError
from dmls_core.serving.repository.options import Canary
from dmls_core.serving.triton.placement import rank
from dmls_core.serving.triton.startup import load_arguments, models_to_load
from tests.support.model_folder import toy_model_folder

NAME = "lab.iris"
BOTH = [NAME, f"{NAME}.table"]


@pytest.fixture
def served(deployment, tmp_path):
    for name in ("a", "b"):
        deployment.deploy(toy_model_folder(tmp_path / name, checkpoint=name.encode()))
    return deployment


def test_served_models_and_models_of_others_are_loaded(served, repository):
    foreign = repository.root / "theirs"
    foreign.mkdir()
    (foreign / "config.pbtxt").write_text('backend: "onnxruntime"')
    (repository.root / "no_model").mkdir()
    arguments = load_arguments(str(repository.root))
    assert arguments == [f"--load-model={name}" for name in (*BOTH, "theirs")]


def test_a_command_prints_the_arguments_for_another_server(served, repository):
    (repository.root / "theirs").mkdir()
    (repository.root / "theirs/config.pbtxt").write_text('backend: "onnxruntime"')
    (repository.root / NAME / "2" / "checkpoint.tl").write_bytes(b"B")
    command = [sys.executable, "-m", "dmls_core.serving.triton.startup", str(repository.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "--load-model=theirs\n"
    assert done.stderr.startswith("lab.iris is not loaded: ")


def test_a_server_loads_the_models_that_are_placed_on_it(served, repository):
    everyone = [f"triton-{number}:8001" for number in range(3)]
    listed, folder = "copies=2," + ",".join(everyone), str(repository.root)
    having = [own for own in everyone if load_arguments(folder, own, listed)]
    assert sorted(having) == sorted(rank(everyone, NAME)[:2])
    assert all(load_arguments(folder, own, ",".join(everyone)) for own in everyone)
    with pytest.raises(PlatformError, match=r"triton-9:8001 is not among Triton's gRPC addresses"):
        load_arguments(folder, "triton-9:8001", listed)


def test_a_candidate_is_not_loaded(served, repository, tmp_path):
    served.stage(toy_model_folder(tmp_path / "c", checkpoint=b"c"))
    assert models_to_load(repository) == BOTH
    assert repository.staged(NAME) == 3, "its publisher may still be at work"


def test_a_first_candidate_leaves_nothing_to_load(deployment, repository, tmp_path):
    deployment.stage(toy_model_folder(tmp_path / "a"))
    assert models_to_load(repository) == []


def test_a_changed_forest_is_not_loaded_and_the_log_says_why(served, repository, caplog):
    (repository.root / NAME / "2" / "checkpoint.tl").write_bytes(b"B")
    assert models_to_load(repository) == []
    assert "lab.iris is not loaded: " in (log := caplog.text)
    assert "2/checkpoint.tl is damaged: its SHA-256 is" in log


def test_a_version_that_was_not_verified_gives_way_to_the_one_before(served, repository, tmp_path):
    served.stage(toy_model_folder(tmp_path / "c", checkpoint=b"c"))
    repository.serve(NAME, 3, previous=2)  # then the publisher and the server were killed
    assert models_to_load(repository) == BOTH
    assert repository.serving(NAME) == 2


def test_with_its_publisher_at_work_that_model_is_left_to_it(served, repository, tmp_path):
    served.stage(toy_model_folder(tmp_path / "c", checkpoint=b"c"))
    repository.serve(NAME, 3, previous=2)
    with repository.lock(NAME):
        assert models_to_load(repository) == []
    assert repository.serving(NAME) == 3


def test_an_unreadable_record_stops_no_other_model(served, repository, caplog):
    (repository.root / ".dmls" / NAME / "record.json").write_text("{")
    foreign = repository.root / "theirs"
    foreign.mkdir()
    (foreign / "config.pbtxt").touch()
    assert models_to_load(repository) == ["theirs"]
    assert "lab.iris is not loaded" in caplog.text


def test_a_challenger_is_loaded_while_it_is_the_canary(served, repository, tmp_path, caplog):
    folder = toy_model_folder(tmp_path / "c", checkpoint=b"c")
    repository.add_challenger(NAME, repository.add(NAME, folder), folder)
    assert models_to_load(repository) == BOTH
    options = repository.options(NAME)
    repository.set_options(NAME, replace(options, canary=Canary(3, 0.1, shadow=False)))
    assert models_to_load(repository) == [*BOTH, f"{NAME}.challenger"]
    (repository.root / f"{NAME}.challenger/3/checkpoint.tl").write_bytes(b"C")
    assert models_to_load(repository) == BOTH
    assert "lab.iris.challenger is not loaded" in caplog.text
