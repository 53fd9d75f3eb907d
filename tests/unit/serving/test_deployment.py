from __future__ import annotations

import json

import pytest

from dmls_core.errors import ServingError
from dmls_core.serving import deploy, rollback_to, verify
from tests.model_folder import toy_model_folder

NAME = "lab.iris"


def test_deploy_verify_and_back(repository, triton, tmp_path):
    first = deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a"))
    assert (first.version, first.previous) == (1, None)
    assert verify(repository, triton, NAME, 1) == 5
    second = deploy(repository, triton, NAME, toy_model_folder(tmp_path / "b", checkpoint=b"b"))
    assert (second.version, second.previous) == (2, 1)
    assert triton.served == {NAME: 2}
    rollback_to(repository, triton, NAME, second.previous)
    assert triton.served == {NAME: 1}
    assert repository.serving(NAME) == 1


def test_repeating_a_deployment_changes_nothing(repository, triton, tmp_path):
    old, new = toy_model_folder(tmp_path / "a"), toy_model_folder(tmp_path / "b", checkpoint=b"b")
    deploy(repository, triton, NAME, old)
    verify(repository, triton, NAME, 1)
    for _ in range(3):
        deployment = deploy(repository, triton, NAME, new)
        assert (deployment.version, deployment.previous) == (2, 1)
        verify(repository, triton, NAME, 2)
    assert repository.versions(NAME) == (1, 2)


def test_a_version_that_cannot_be_loaded_leaves_the_old_one_serving(repository, triton, tmp_path):
    deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a"))
    verify(repository, triton, NAME, 1)
    with pytest.raises(ServingError, match=r"load failed.*Version 1 is still served"):
        deploy(repository, triton, NAME, toy_model_folder(tmp_path / "b", checkpoint=b"broken"))
    assert triton.served == {NAME: 1}
    assert repository.serving(NAME) == 1


def test_a_first_version_that_cannot_be_loaded_leaves_no_configuration(repository, triton, tmp_path):
    with pytest.raises(ServingError, match="Nothing else was served"):
        deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a", checkpoint=b"broken"))
    assert repository.serving(NAME) is None


def test_with_triton_down_the_old_configuration_stays(repository, triton, tmp_path):
    deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a"))
    verify(repository, triton, NAME, 1)
    triton.down = True
    new = toy_model_folder(tmp_path / "b", checkpoint=b"b")
    with pytest.raises(ServingError, match=r"does not answer.*Version 1 is configured again"):
        deploy(repository, triton, NAME, new)
    assert repository.serving(NAME) == 1
    triton.down = False
    assert deploy(repository, triton, NAME, new).version == 2


def test_killed_between_configuration_and_load_then_unloadable_goes_back_to_the_verified_one(
    repository, triton, tmp_path
):
    deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a"))
    verify(repository, triton, NAME, 1)
    broken = toy_model_folder(tmp_path / "b", checkpoint=b"broken")
    with repository.lock(NAME):
        repository.serve(NAME, repository.add(NAME, broken))
    with pytest.raises(ServingError, match="Version 1 is still served"):
        deploy(repository, triton, NAME, broken)
    assert repository.serving(NAME) == 1


def test_rolling_back_to_nothing_takes_the_model_down(repository, triton, tmp_path):
    deployment = deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a"))
    rollback_to(repository, triton, NAME, deployment.previous)
    assert triton.served == {}
    assert repository.serving(NAME) is None


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("error", [2e-6, -0.5, float("nan")])
def test_a_wrong_probability_is_named(repository, triton, tmp_path, protocol, error):
    deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a"))
    triton.error[protocol] = error
    with pytest.raises(
        ServingError, match=rf"version 1 over {protocol}: golden row 3 expected '\w+' \(setosa: .*got"
    ):
        verify(repository, triton, NAME, 1)
    assert repository.verified(NAME) == ()


def test_a_wrong_class_is_wrong_however_close(repository, triton, tmp_path):
    folder = toy_model_folder(tmp_path / "a")
    golden = json.loads((folder / "golden.json").read_text())
    golden["expected"][3] = [0.3333333, 0.3333334, 0.3333333]
    (folder / "golden.json").write_text(json.dumps(golden))
    deploy(repository, triton, NAME, folder)
    triton.error["grpc"] = 3e-7
    with pytest.raises(ServingError, match=r"row 3 expected 'versicolor' .* got 'setosa'"):
        verify(repository, triton, NAME, 1)


def test_a_probability_within_float32_passes(repository, triton, tmp_path):
    deploy(repository, triton, NAME, toy_model_folder(tmp_path / "a", n_golden=200))
    triton.error["http"] = 5e-7
    assert verify(repository, triton, NAME, 1) == 200
    assert repository.verified(NAME) == (1,)


def test_a_regression_is_held_to_a_relative_tolerance(repository, triton, tmp_path):
    folder = toy_model_folder(tmp_path / "a", labels=None)
    golden = json.loads((folder / "golden.json").read_text())
    golden["expected"] = [value * 1e6 for value in golden["expected"]]
    (folder / "golden.json").write_text(json.dumps(golden))
    deploy(repository, triton, NAME, folder)
    triton.error["http"] = 1.0
    assert verify(repository, triton, NAME, 1) == 5
    triton.error["http"] = 100.0
    with pytest.raises(ServingError, match=r"over http: golden row 3 expected -?[\d.]+, got -?[\d.]+"):
        verify(repository, triton, NAME, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expected": [[float("nan")] * 3] * 5}, "no usable golden rows"),
        ({"columns": {"length": [], "width": []}, "encoded": [], "expected": []}, "no usable golden rows"),
        ({"columns": {"length": [1.0] * 5, "width": [2.0] * 5}}, "golden row 0 is encoded differently"),
        ({"columns": {"length": [1.0] * 5}}, "cannot be encoded: columns are missing: 'width'"),
    ],
)
def test_golden_rows_that_prove_nothing_are_refused(repository, triton, tmp_path, change, message):
    folder = toy_model_folder(tmp_path / "a")
    golden = json.loads((folder / "golden.json").read_text()) | change
    (folder / "golden.json").write_text(json.dumps(golden))
    deploy(repository, triton, NAME, folder)
    with pytest.raises(ServingError, match=message):
        verify(repository, triton, NAME, 1)
