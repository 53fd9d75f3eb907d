from __future__ import annotations

import json

import pytest

from dmls_core.errors import NotFoundError, ServingError, TrackingError
from dmls_core.serving import Deployment
from tests.support.model_folder import toy_model_folder
from tests.unit.serving.conftest import PlayedTriton

NAME = "lab.iris"


def test_deploy_verify_and_roll_back(deployment, repository, triton, tmp_path):
    first = deployment.deploy(toy_model_folder(tmp_path / "a"))
    assert (first.version, first.previous) == (1, None)
    assert deployment.verify(1).rows == 5
    second = deployment.deploy(toy_model_folder(tmp_path / "b", checkpoint=b"b"))
    assert (second.version, second.previous) == (2, 1)
    assert triton.served == {NAME: 2, f"{NAME}.table": 1}, "the columns are the same: its process stays"
    deployment.rollback(second.previous)
    assert triton.served == {NAME: 1, f"{NAME}.table": 1}
    assert repository.serving(NAME) == 1


def changed(folder, change):
    encoder = json.loads((folder / "encoder.json").read_text())
    change(encoder)
    (folder / "encoder.json").write_text(json.dumps(encoder))
    return folder


def test_a_table_endpoint_is_loaded_again_only_if_its_columns_or_its_code_changed(
    deployment, repository, triton, tmp_path, monkeypatch
):
    config, table = repository.root / f"{NAME}.table/config.pbtxt", f"{NAME}.table"
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    before = config.stat().st_mtime_ns
    filled = changed(
        toy_model_folder(tmp_path / "b", checkpoint=b"treeb"), lambda e: e["features"][0].update(fill=7.0)
    )
    deployment.stage(filled)
    assert triton.served == {NAME: 1, table: 1, f"{NAME}.candidate": 2}, "the served table asks the candidate"
    deployment.promote(2)
    assert config.stat().st_mtime_ns == before
    assert {path.name for path in (config.parent / "2").iterdir()} == {"encoder.json"}
    relabelled = toy_model_folder(tmp_path / "c", checkpoint=b"treec", labels=("x", "y", "z"))
    deployment.stage(relabelled)
    assert triton.served[f"{NAME}.candidate.table"] == 3
    deployment.promote(3)
    assert triton.served == {NAME: 3, table: 3}
    deployment.rollback(2)
    assert triton.served == {NAME: 2, table: 2}
    monkeypatch.setattr(
        "dmls_core.serving.repository.table_endpoints.table_code", lambda _: {"model.py": "pass"}
    )
    deployment.deploy(toy_model_folder(tmp_path / "d", checkpoint=b"treed"))
    assert triton.served == {NAME: 4, table: 4}


def test_repeating_a_deployment_changes_nothing(deployment, repository, tmp_path):
    old, new = toy_model_folder(tmp_path / "a"), toy_model_folder(tmp_path / "b", checkpoint=b"b")
    deployment.deploy(old)
    for _ in range(3):
        deployed = deployment.deploy(new)
        assert (deployed.version, deployed.previous) == (2, 1)
        deployment.verify(2)
    assert repository.versions(NAME) == (1, 2)


def test_a_version_that_cannot_be_loaded_leaves_the_old_one_serving(deployment, repository, triton, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    with pytest.raises(ServingError, match=r"load failed.*Version 1 is still served"):
        deployment.deploy(toy_model_folder(tmp_path / "b", checkpoint=b"broken"))
    assert triton.served == {NAME: 1, f"{NAME}.table": 1}
    assert repository.serving(NAME) == 1


def test_a_first_version_that_cannot_be_loaded_leaves_no_configuration(deployment, repository, tmp_path):
    with pytest.raises(ServingError, match="No other version was served"):
        deployment.deploy(toy_model_folder(tmp_path / "a", checkpoint=b"broken"))
    assert repository.serving(NAME) is None


def test_with_triton_down_the_old_configuration_stays(deployment, repository, triton, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    triton.down = True
    new = toy_model_folder(tmp_path / "b", checkpoint=b"b")
    with pytest.raises(ServingError, match=r"Version 1 is configured, but Triton at triton:8000 does not"):
        deployment.deploy(new)
    assert repository.serving(NAME) == 1
    triton.down = False
    assert deployment.deploy(new).version == 2


def test_a_model_can_be_taken_down(deployment, repository, triton, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    deployment.take_down()
    assert triton.served == {}
    assert repository.serving(NAME) is None


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("error", [2e-6, -0.5, float("nan")])
def test_a_wrong_probability_is_named(deployment, repository, triton, tmp_path, protocol, error):
    triton.error[protocol] = error
    with pytest.raises(
        ServingError, match=rf"version 1 over {protocol}: golden row 3 expected '\w+' \(setosa: .*got"
    ):
        deployment.deploy(toy_model_folder(tmp_path / "a"))
    assert triton.served == {}
    assert repository.verified(NAME) == ()


def test_a_wrong_class_is_wrong_however_close(deployment, triton, tmp_path):
    folder = toy_model_folder(tmp_path / "a")
    golden = json.loads((folder / "golden.json").read_text())
    golden["expected"][3] = [0.3333333, 0.3333334, 0.3333333]
    (folder / "golden.json").write_text(json.dumps(golden))
    triton.error["grpc"] = 3e-7
    with pytest.raises(ServingError, match=r"row 3 expected 'versicolor' .* got 'setosa'"):
        deployment.deploy(folder)


def test_a_probability_within_float32_passes(deployment, repository, triton, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "a", n_golden=200))
    triton.error["http"] = 5e-7
    assert deployment.verify(1).rows == 200
    assert repository.verified(NAME) == (1,)


def test_a_regression_is_held_to_a_relative_tolerance(deployment, triton, tmp_path):
    folder = toy_model_folder(tmp_path / "a", labels=None)
    golden = json.loads((folder / "golden.json").read_text())
    golden["expected"] = [value * 1e6 for value in golden["expected"]]
    (folder / "golden.json").write_text(json.dumps(golden))
    deployment.deploy(folder)
    triton.error["http"] = 1.0
    assert deployment.verify(1).rows == 5
    triton.error["http"] = 100.0
    with pytest.raises(ServingError, match=r"over http: golden row 3 expected -?[\d.]+, got -?[\d.]+"):
        deployment.verify(1)


def test_a_value_near_zero_is_held_to_the_size_of_the_others(deployment, triton, tmp_path, monkeypatch):
    folder = toy_model_folder(tmp_path / "a", labels=None)
    golden = json.loads((folder / "golden.json").read_text())
    golden["expected"] = [2.0, -3.0, 1.0, 1e-6, 0.5]
    (folder / "golden.json").write_text(json.dumps(golden))
    triton.error = {"http": 2e-7, "grpc": -2e-7}
    monkeypatch.setattr("dmls_core.serving.deployment.verification.BATCH", 1)
    assert deployment.deploy(folder).version == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"expected": [[float("nan")] * 3] * 5}, "no usable golden rows"),
        ({"columns": {"length": [], "width": []}, "encoded": [], "expected": []}, "no usable golden rows"),
        ({"columns": {"length": [1.0] * 5, "width": [2.0] * 5}}, "golden row 0 is encoded differently"),
        ({"columns": {"length": [1.0] * 5}}, "cannot be encoded: columns are missing: 'width'"),
    ],
)
def test_unusable_golden_rows_are_rejected(deployment, triton, tmp_path, change, message):
    folder = toy_model_folder(tmp_path / "a")
    golden = json.loads((folder / "golden.json").read_text()) | change
    (folder / "golden.json").write_text(json.dumps(golden))
    with pytest.raises(ServingError, match=message):
        deployment.deploy(folder)
    assert triton.served == {}


def test_a_latency_over_the_limit_is_not_served(deployment, triton, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    slow = toy_model_folder(tmp_path / "b", checkpoint=b"b")
    message = r"a request for one row takes .* max_latency_ms is 1e-09\. Version 1 is still served"
    with pytest.raises(ServingError, match=message):
        deployment.deploy(slow, max_latency_ms=1e-9)
    assert triton.served == {NAME: 1, f"{NAME}.table": 1}
    assert deployment.deploy(slow, max_latency_ms=60_000).proof.milliseconds > 0


def test_a_candidate_of_another_publisher_is_reported(deployment, triton, tmp_path):
    first = deployment.stage(toy_model_folder(tmp_path / "a"))
    second = deployment.stage(toy_model_folder(tmp_path / "b", checkpoint=b"b"))
    assert triton.served == {f"{NAME}.candidate": 2, f"{NAME}.candidate.table": 2}
    with pytest.raises(ServingError, match="version 1 of lab.iris is no longer the candidate"):
        deployment.promote(first.version)
    deployment.promote(second.version)
    assert triton.served == {NAME: 2, f"{NAME}.table": 2}
    assert deployment.promote(second.version).version == 2, "a repeated step"


def test_the_old_version_is_served_if_the_alias_cannot_be_moved(deployment, repository, triton, tmp_path):
    def fail(version, before):
        assert (version, before, triton.served[NAME]) == (2, 1, 2)
        raise TrackingError("MLflow does not answer")

    deployment.deploy(toy_model_folder(tmp_path / "a"))
    new = toy_model_folder(tmp_path / "b", checkpoint=b"b")
    with pytest.raises(ServingError, match=r"MLflow does not answer\. Version 1 is still served"):
        deployment.deploy(new, finish=fail)
    assert triton.served[NAME] == 1
    assert repository.verified(NAME) == (1,)


def test_old_versions_are_kept_by_rule_and_never_the_served_one_removed(deployment, repository, tmp_path):
    for number in range(5):
        deployment.deploy(toy_model_folder(tmp_path / str(number), checkpoint=b"%d" % number))
    assert repository.versions(NAME) == (3, 4, 5)
    table = repository.root / f"{NAME}.table"
    assert sorted(p.name for p in table.iterdir()) == ["1", "3", "4", "5", "config.pbtxt"], "1 has the code"
    deployment.rollback(3)
    sixth = toy_model_folder(tmp_path / "6", checkpoint=b"6")
    deployment.deploy(sixth, keep=1)
    assert repository.versions(NAME) == (3, 6), "the one to go back to stays"
    assert deployment.rollback().version == 3
    with pytest.raises(NotFoundError, match=r"no verified version 4 to roll back to.*kept versions: 3, 6"):
        deployment.rollback(4)


def test_a_rollback_rejects_a_damaged_version(deployment, repository, triton, tmp_path):
    for name in ("a", "b"):
        deployment.deploy(toy_model_folder(tmp_path / name, checkpoint=name.encode()))
    (repository.root / NAME / "1" / "checkpoint.tl").write_bytes(b"A")
    with pytest.raises(ServingError, match=r"1/checkpoint.tl is damaged"):
        deployment.rollback()
    assert triton.served[NAME] == 2


def test_if_one_server_fails_all_go_back(repository, triton, tmp_path):
    other = PlayedTriton(repository)
    Deployment(repository, [triton, other], NAME).deploy(toy_model_folder(tmp_path / "a"))
    new = toy_model_folder(tmp_path / "b", checkpoint=b"b")
    Deployment(repository, [triton, other], NAME).stage(new)
    load = other.load

    def refuse(name):
        if name == NAME and repository.serving(NAME) == 2:
            raise ServingError("no memory left")
        load(name)

    other.load = refuse
    with pytest.raises(ServingError, match=r"no memory left\. Version 1 is still served"):
        Deployment(repository, [triton, other], NAME).promote(2)
    assert triton.served[NAME] == other.served[NAME] == repository.serving(NAME) == 1
