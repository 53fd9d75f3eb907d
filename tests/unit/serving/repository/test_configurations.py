"""Which models share a process, their ensembles and the records of their slots."""

from __future__ import annotations

import json
import re

import pytest

from dmls_core.data.encoder import Encoder
from dmls_core.serving import choose_scaling
from dmls_core.serving.repository.options import Canary, ServingOptions
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.triton.backends import backend_of
from dmls_core.serving.triton.model_config import configured_versions
from dmls_core.serving.triton.shared_process import COLUMNS, HIGH, LOW, Slot, fits, shared_config, table_front
from dmls_core.serving.triton.startup import models_to_load
from tests.support.model_folder import toy_model_folder
from tests.unit.serving.conftest import NAME

TABLE = f"{NAME}.table"


@pytest.fixture(autouse=True)
def shared(monkeypatch):
    monkeypatch.setenv("DMLS_SERVING_SHARED_BYTES", "100")


def config(repository, name=NAME):
    return (repository.root / name / "config.pbtxt").read_text()


def is_ensemble(repository, name=NAME):
    return 'platform: "ensemble"' in config(repository, name)


def records(repository):
    return [json.loads(path.read_text()) for path in (repository.root / ".dmls/shared").glob("*/*.json")]


def encoder(numbers, texts):
    features = [{"name": f"n{i}", "kind": "number", "fill": 0.0} for i in range(numbers)]
    features += [
        {"name": f"t{i}", "kind": "category", "categories": ["a"], "missing": None, "unknown": -1}
        for i in range(texts)
    ]
    target = {"name": "y", "kind": "label", "labels": ["a", 'b"']}
    return Encoder.from_json({"schema": 1, "features": features, "target": target})


def test_a_small_model_is_deployed_as_two_ensembles_and_keeps_its_names(
    deployment, repository, triton, tmp_path
):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    assert triton.served == {NAME: 1, TABLE: 1}
    assert is_ensemble(repository)
    assert is_ensemble(repository, TABLE)
    (record,) = records(repository)
    assert (record["model"], record["version"]) == (NAME, 1)
    assert record["sha256"].keys() == {"encoder.json", "checkpoint.tl"}
    deployment.stage(toy_model_folder(tmp_path / "b", checkpoint=b"more"))
    assert triton.served[f"{NAME}.candidate.table"] == 2, "the candidate is verified in the shared process"
    assert choose_scaling(deployment, 2).reason == "small models share one process"
    deployment.promote(2)
    assert triton.served == {NAME: 2, TABLE: 2}
    assert configured_versions(config(repository, TABLE)) == (2,)
    deployment.rollback()
    assert triton.served == {NAME: 1, TABLE: 1}
    assert sorted(models_to_load(repository)) == ["dmls-shared", NAME, TABLE]


@pytest.mark.parametrize(
    "options",
    [ServingOptions(log_share=0.5), ServingOptions(canary=Canary(2, 0.1, shadow=True))],
    ids=["log", "canary"],
)
def test_a_model_with_a_log_or_a_canary_has_its_own_processes(deployment, repository, tmp_path, options):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    with repository.lock(NAME):
        repository.set_options(NAME, options)
        repository.serve(NAME, 1)
        assert not is_ensemble(repository)
        assert not is_ensemble(repository, TABLE)
        repository.set_options(NAME, ServingOptions())
        repository.serve(NAME, 1)
    assert is_ensemble(repository)


def test_a_larger_model_and_one_without_the_setting_have_their_own(
    deployment, repository, tmp_path, monkeypatch
):
    deployment.deploy(toy_model_folder(tmp_path / "a", checkpoint=b"x" * 101))
    assert not is_ensemble(repository)
    deployment.deploy(toy_model_folder(tmp_path / "b", checkpoint=b"x" * 100))
    assert is_ensemble(repository)
    monkeypatch.delenv("DMLS_SERVING_SHARED_BYTES")
    deployment.deploy(toy_model_folder(tmp_path / "c", checkpoint=b"x" * 99))
    assert not is_ensemble(repository)
    assert 'backend: "fil"' in config(repository)


def test_a_removed_version_loses_its_slot_and_a_new_one_under_its_number_gets_it(repository, tmp_path):
    for number, content in enumerate((b"a", b"b", b"c", b"d"), start=1):
        with repository.lock(NAME):
            repository.add(NAME, toy_model_folder(tmp_path / str(number), checkpoint=content))
            repository.serve(NAME, number)
            repository.confirm(NAME, number)
    assert len(records(repository)) == 4
    with repository.lock(NAME):
        assert repository.prune(NAME, 2) == (1, 2)
    assert {record["version"] for record in records(repository)} == {3, 4}
    slots = re.findall(r"slot.*?\"(\d+ \d+)\"", config(repository))
    with repository.lock(NAME):
        repository.serve(NAME, 4)
    assert re.findall(r"slot.*?\"(\d+ \d+)\"", config(repository)) == slots, "a version keeps its slot"
    file = next((repository.root / ".dmls/shared").glob("*/*.json"))
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"sha256": {"encoder.json": "old", "checkpoint.tl": "old"}}))
    with repository.lock(NAME):
        repository.serve(NAME, record["version"])
    assert json.loads(file.read_text()) == record


def test_versions_of_one_low_number_have_different_slots_until_none_is_free(
    repository, tmp_path, monkeypatch
):
    monkeypatch.setattr("dmls_core.serving.repository.shared_process.LOW", 1)
    monkeypatch.setattr("dmls_core.serving.repository.shared_process.HIGH", 2)
    folder = toy_model_folder(tmp_path / "a")
    for name in ("lab.a", "lab.b", "lab.c"):
        with repository.lock(name):
            repository.add(name, folder)
            repository.serve(name, 1)
    assert {record["model"] for record in records(repository)} == {"lab.a", "lab.b"}
    assert "input_0" in config(repository, "lab.a")
    assert "input_1" in config(repository, "lab.b")
    assert not is_ensemble(repository, "lab.c"), "without a free slot it has its own processes"


def test_the_ensemble_has_the_inputs_of_the_table_endpoint():
    text = table_front(NAME, encoder(2, 1), 3, Slot(9, 1))
    assert configured_versions(text) == (3,)
    maps = dict(re.findall(r'_map \{ key: "([^"]+)" value: "([^"]+)" \}', text))
    assert {key: maps[key] for key in ("number_0", "number_1", "text_0")} == {
        "number_0": "n0",
        "number_1": "n1",
        "text_0": "t0",
    }
    assert maps["numbers"].startswith("numbers-")
    assert maps["texts"].startswith("texts-")
    assert maps.keys() >= {"label", "probabilities_9", "version_1"}
    inner = set(re.findall(r'name: "([^"]+)" data_type', shared_config()))
    assert maps.keys() <= inner
    assert {f"output_{LOW - 1}", f"input_{HIGH - 1}", f"number_{COLUMNS - 1}"} <= inner


def test_more_columns_than_the_shared_model_has_do_not_fit():
    assert fits(encoder(COLUMNS, COLUMNS))
    assert not fits(encoder(COLUMNS + 1, 0))
    assert not fits(encoder(1, COLUMNS + 1))


def test_an_ensemble_is_not_taken_for_a_fil_backend():
    assert backend_of({"platform": "ensemble"}) == "shared"


def test_an_exported_repository_needs_no_shared_process(tmp_path):
    repository = Repository(str(tmp_path / "models"), sharing=False)
    with repository.lock(NAME):
        repository.serve(NAME, repository.add(NAME, toy_model_folder(tmp_path / "a")))
    assert not is_ensemble(repository)
    assert not (repository.root / "dmls-shared").exists()
