from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from dmls_core.cli.main import app
from dmls_core.errors import NotFoundError, ServingError, UserError
from dmls_core.serving import Deployment, Repository
from dmls_core.serving.predict.export import TRITON_IMAGE, export_version, resource_name
from tests.support.model_folder import toy_model_folder
from tests.support.pages import ROOT
from tests.unit.serving.conftest import PlayedTriton

NAME = "lab.iris"
URI = "s3://models/iris"


@pytest.fixture
def repository(tmp_path):
    """A repository that serves the second of two versions."""
    repository = Repository(str(tmp_path / "models"))
    deployment = Deployment(repository, PlayedTriton(repository), NAME)
    for name in ("a", "b"):
        deployment.deploy(toy_model_folder(tmp_path / name, checkpoint=name.encode()))
    return repository


def test_the_served_version_becomes_a_repository_of_its_own(repository, tmp_path):
    out = tmp_path / "out"
    done = export_version(repository, NAME, "triton", out)
    assert (done["version"], done["target"]) == (2, "triton")
    assert (out / "models" / NAME / "1" / "checkpoint.tl").read_bytes() == b"b"
    assert "versions: [ 1 ]" in (out / "models" / NAME / "config.pbtxt").read_text()
    assert (out / "models" / f"{NAME}.table" / "1" / "model.py").is_file()
    assert sorted(path.name for path in (out / "models").iterdir()) == [NAME, f"{NAME}.table"]
    assert not (out / "kubernetes.yaml").exists()


def test_an_earlier_version_is_exported_by_its_number(repository, tmp_path):
    assert export_version(repository, NAME, "triton", tmp_path / "out", version=1)["version"] == 1
    assert (tmp_path / "out" / "models" / NAME / "1" / "checkpoint.tl").read_bytes() == b"a"


def test_the_kubernetes_manifests_are_valid_and_unprivileged(repository, tmp_path):
    export_version(repository, NAME, "triton", tmp_path / "out", uri=URI)
    text = (tmp_path / "out" / "kubernetes.yaml").read_text()
    assert "&id" not in text
    deployment, service = yaml.safe_load_all(text)
    for manifest in (deployment, service):
        kubernetes_validate.validate(manifest, "1.33", strict=True)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert f"--model-repository={URI}" in container["args"]
    assert container["readinessProbe"]["httpGet"]["path"] == f"/v2/models/{NAME}.table/ready"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert deployment["metadata"]["annotations"] == {"dmls/model": NAME, "dmls/version": "2"}
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]


def test_the_container_starts_triton_without_the_memory_of_a_killed_one(repository, tmp_path):
    export_version(repository, NAME, "triton", tmp_path / "out", uri=URI)
    deployment, _ = yaml.safe_load_all((tmp_path / "out" / "kubernetes.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    page = (ROOT / "docs/how-to/kubernetes.md").read_text()
    (documented,) = re.findall(r"^ +command: (\[.*tritonserver.*)$", page, re.MULTILINE)
    program = tmp_path / "tritonserver"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for command in (container["args"], [*yaml.safe_load(documented), *container["args"][4:]]):
        left = Path(f"/dev/shm/triton_python_backend_shm_region_{tmp_path.name}")
        left.write_bytes(b"")
        done = subprocess.run(command, env=path, check=True, capture_output=True, text=True)
        assert done.stdout.split() == container["args"][4:]
        assert not left.exists()


def test_the_inference_service_names_the_repository_and_the_runtime(repository, tmp_path):
    export_version(repository, NAME, "kserve", tmp_path / "out", uri=URI)
    found = yaml.safe_load((tmp_path / "out" / "inference-service.yaml").read_text())
    assert (found["apiVersion"], found["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    model = found["spec"]["predictor"]["model"]
    assert (model["modelFormat"], model["storageUri"]) == ({"name": "triton"}, URI)
    assert TRITON_IMAGE.endswith(f":{model['runtimeVersion']}")


def test_the_image_is_that_of_the_compose_file(request):
    assert (
        f"${{TRITON_IMAGE:-{TRITON_IMAGE}}}" in (request.config.rootpath / "docker-compose.yaml").read_text()
    )


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("lab.iris", "lab-iris"),
        ("7.a_b", "m-7-a-b"),
        ("a" * 63 + ".b", "a" * 63),
        ("a" * 62 + ".b", "a" * 62),
    ],
)
def test_names_fit_kubernetes(model, name):
    assert resource_name(model) == name


@pytest.mark.parametrize(
    ("target", "uri", "message"),
    [
        ("kserve", "", "the target kserve needs --uri"),
        ("triton", "/tmp/models", "'/tmp/models' is not a repository URL"),
        ("triton", "s3://a b", "'s3://a b' is not a repository URL"),
        ("onnx", URI, "an ONNX file has no --uri"),
    ],
)
def test_a_wrong_uri_is_refused_before_anything_is_written(repository, tmp_path, target, uri, message):
    with pytest.raises(UserError, match=message):
        export_version(repository, NAME, target, tmp_path / "out", uri=uri)
    assert not (tmp_path / "out").exists()


def test_a_folder_with_files_is_left_alone(repository, tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        export_version(repository, NAME, "triton", tmp_path)


@pytest.mark.parametrize(("model", "version"), [(NAME, 9), ("lab.wine", None)])
def test_an_unknown_version_is_an_error_that_lists_the_kept_ones(repository, tmp_path, model, version):
    with pytest.raises(NotFoundError) as error:
        export_version(repository, model, "triton", tmp_path / "out", version=version)
    assert ("kept versions: 1, 2" if version else "kept versions: none") in str(error.value)


def test_a_damaged_version_is_not_exported(repository, tmp_path):
    (repository.root / NAME / "2" / "checkpoint.tl").write_bytes(b"x")
    with pytest.raises(ServingError, match=r"checkpoint\.tl"):
        export_version(repository, NAME, "triton", tmp_path / "out")


def test_the_command_reports_what_it_wrote(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("DMLS_TRITON_REPOSITORY", str(repository.root))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["export", "lab/iris"])
    assert result.exit_code == 0, result.output
    assert "lab.iris version 2 is in iris-triton" in result.output
    result = CliRunner().invoke(app, ["export", "lab/iris", "--out", "other", "--json"])
    assert "models/lab.iris.table/1/encoder.json" in json.loads(result.stdout)["files"]
