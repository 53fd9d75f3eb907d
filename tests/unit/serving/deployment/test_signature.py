"""Signed models: what a folder must hold, and what each step refuses."""

from __future__ import annotations

import json
import random
import shutil

import pandas as pd
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from dmls_core.devstack.context import Context, load_identity
from dmls_core.devstack.signing import sign_earlier_models, signing_environment
from dmls_core.errors import PlatformError, ServingError
from dmls_core.serving.deployment.acceptance import check_version
from dmls_core.serving.deployment.reconcile import reconcile
from dmls_core.serving.deployment.signature import SIGNATURE_FILE, problem, public_keys, sign
from dmls_core.serving.deployment.signed_models import (
    check_run_signature,
    check_version_signature,
    sign_model,
    sign_versions,
)
from dmls_core.serving.repository.repository import Repository
from dmls_core.tracking.model_folder import built_model
from tests.support.model_folder import toy_model_folder
from tests.support.signing_keys import key_pair
from tests.support.trained_run import trained_run, user_rows

NAME, RUN = "lab.iris", "0123456789abcdef"

flips = pytest.mark.parametrize(
    "flips", [100, pytest.param(1_000, marks=pytest.mark.nightly("each bit is checked in 2 ms"))]
)


@pytest.fixture(scope="module")
def keys():
    return key_pair()


@pytest.fixture
def signing(keys, monkeypatch):
    """A platform whose trainers sign and whose tasks want signatures."""
    monkeypatch.setenv("DMLS_SIGNING_KEY", keys.private)
    monkeypatch.setenv("DMLS_SIGNERS", keys.public)


def signed(folder, checkpoint=b"trees", owner=NAME):
    assert sign_model(toy_model_folder(folder, checkpoint=checkpoint), owner, RUN)
    return folder


def check(folder):
    check_run_signature(folder, NAME, RUN, "the model")


@flips
def test_no_single_changed_bit_is_accepted(keys, tmp_path, flips):
    folder = toy_model_folder(tmp_path / "model")
    (folder / SIGNATURE_FILE).write_bytes(sign(folder, NAME, keys.private))
    known = public_keys(keys.public)
    assert problem(folder, known) == ""
    random.seed(12)
    paths = sorted(folder.iterdir())
    accepted = []
    for _ in range(flips):
        path = random.choice(paths)
        before = path.read_bytes()
        place = random.randrange(8 * len(before))
        changed = bytearray(before)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        if not problem(folder, known):
            accepted.append((path.name, place))
        path.write_bytes(before)
    assert accepted == []
    assert problem(folder, known) == ""


def test_the_last_bits_of_a_signatures_base64_count(keys, tmp_path):
    folder = toy_model_folder(tmp_path / "model")
    (folder / SIGNATURE_FILE).write_bytes(sign(folder, NAME, keys.private))
    text = (folder / SIGNATURE_FILE).read_text()
    payload = json.loads(text)["dsseEnvelope"]["payload"]
    for padding in ("==", "="):
        if payload.endswith(padding):
            at = text.index(payload) + len(payload) - len(padding) - 1
            other = chr(ord(text[at]) + 1)
            (folder / SIGNATURE_FILE).write_text(text[:at] + other + text[at + 1 :])
            assert "damaged" in problem(folder, public_keys(keys.public))
            break


def test_what_differs_is_named(signing, tmp_path):
    folder = signed(tmp_path / "model")
    check(folder)
    (folder / "card.html").write_text("the card reports deployments")
    (folder / "dmls.json").write_text("{}")
    check(folder)
    (folder / "extra.py").write_text("")
    with pytest.raises(ServingError, match=r"^the model is not .*: extra files: extra\.py; train it again$"):
        check(folder)
    (folder / "extra.py").unlink()
    (folder / "golden.json").write_text("{}")
    with pytest.raises(ServingError, match=r"golden\.json was changed"):
        check(folder)
    (folder / "golden.json").unlink()
    with pytest.raises(ServingError, match=r"missing files: golden\.json"):
        check(folder)
    (folder / SIGNATURE_FILE).unlink()
    with pytest.raises(ServingError, match=r"model\.sig is missing"):
        check(folder)


def test_a_signed_model_of_another_job_is_refused(signing, tmp_path):
    with pytest.raises(ServingError, match=r"signed for lab\.other"):
        check(signed(tmp_path / "model", owner="lab.other"))


def test_earlier_keys_stay_valid_until_they_are_removed(signing, keys, tmp_path, monkeypatch):
    folder, new = signed(tmp_path / "model"), key_pair()
    monkeypatch.setenv("DMLS_SIGNERS", new.public + keys.public)
    check(folder)
    (folder / "model.json").write_text("{}")
    with pytest.raises(ServingError, match=r"model\.json was changed"):
        check(folder)
    monkeypatch.setenv("DMLS_SIGNERS", new.public)
    with pytest.raises(ServingError, match="made with another key"):
        check(folder)


def test_without_keys_nothing_is_signed_or_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("DMLS_SIGNING_KEY", raising=False)
    monkeypatch.delenv("DMLS_SIGNERS", raising=False)
    folder = toy_model_folder(tmp_path / "model")
    assert not sign_model(folder, NAME, RUN)
    check(folder)


def test_a_wrong_key_is_an_error_that_names_its_variable(tmp_path, monkeypatch):
    folder = toy_model_folder(tmp_path / "model")
    other = ed25519.Ed25519PrivateKey.generate()
    private = other.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    public = (
        other.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )
    odd = (
        ec.generate_private_key(ec.SECP256K1())
        .private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        .decode()
    )
    for key in ("no key", private, odd):
        monkeypatch.setenv("DMLS_SIGNING_KEY", key)
        with pytest.raises(PlatformError, match="^DMLS_SIGNING_KEY: it is not a private key") as caught:
            sign_model(folder, NAME, RUN)
        assert key not in str(caught.value)
    for key in ("no key", public, public.replace("MC", "AA")):
        monkeypatch.setenv("DMLS_SIGNERS", key)
        with pytest.raises(PlatformError, match="^DMLS_SIGNERS: "):
            check(folder)


def test_every_step_of_a_deployment_refuses_what_was_not_signed(signing, deployment, repository, tmp_path):
    with pytest.raises(ServingError, match=r"lab\.iris is not as a trainer signed it: model\.sig is missing"):
        deployment.stage(toy_model_folder(tmp_path / "unsigned"))
    assert repository.versions(NAME) == ()
    assert deployment.deploy(signed(tmp_path / "a"), RUN).version == 1
    assert deployment.deploy(signed(tmp_path / "b", b"treeb"), RUN).version == 2
    deployment.rollback(1)
    # Whoever can write the repository can also write its checksums.
    forge(repository, 2, b"evil!")
    with pytest.raises(ServingError, match=r"version 2 is not .*: checkpoint\.tl was changed"):
        deployment.rollback(2)
    with pytest.raises(ServingError, match=r"version 2 is not .*: checkpoint\.tl was changed"):
        reconcile(deployment, lambda: 2)
    assert repository.serving(NAME) == 1
    staged = deployment.stage(signed(tmp_path / "c", b"treec"), RUN).version
    forge(repository, staged, b"evil!")
    (repository.root / f"{NAME}.candidate/{staged}/checkpoint.tl").write_bytes(b"evil!")
    with pytest.raises(ServingError, match=r"version 3 is not .*: checkpoint\.tl was changed"):
        deployment.promote(staged)
    assert repository.serving(NAME) == 1


@flips
def test_no_single_changed_bit_of_a_stored_version_is_served(
    signing, deployment, repository, tmp_path, flips
):
    """Nor of `dmls.json`, the record of its checksums, which no trainer signs."""
    deployment.deploy(signed(tmp_path / "a"), RUN)
    deployment.deploy(signed(tmp_path / "b", b"treeb"), RUN)
    deployment.rollback(1)
    random.seed(16)
    paths = sorted(path for path in (repository.root / NAME / "2").rglob("*") if path.is_file())
    assert "dmls.json" in {path.name for path in paths}
    for _ in range(flips):
        path = random.choice(paths)
        before = path.read_bytes()
        place = random.randrange(8 * len(before))
        changed = bytearray(before)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(ServingError):
            deployment.rollback(2)
        path.write_bytes(before)
    assert repository.serving(NAME) == 1
    deployment.rollback(2)


def forge(repository, version, checkpoint):
    """Change a version's checkpoint and its checksum, as an intruder in the repository would."""
    folder = repository.root / NAME / str(version)
    (folder / "checkpoint.tl").write_bytes(checkpoint)
    other = toy_model_folder(repository.root.parent / f"forged-{version}", checkpoint=checkpoint)
    about = json.loads((folder / "dmls.json").read_text())
    from dmls_core.serving.repository.files import sha256

    about["sha256"]["checkpoint.tl"] = sha256(other / "checkpoint.tl")
    (folder / "dmls.json").write_text(json.dumps(about))


def test_the_versions_of_an_earlier_release_are_signed_once(
    deployment, repository, keys, tmp_path, monkeypatch
):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    deployment.deploy(toy_model_folder(tmp_path / "b", checkpoint=b"treeb"))
    monkeypatch.setenv("DMLS_SIGNERS", keys.public)
    with pytest.raises(ServingError, match=r"model\.sig is missing"):
        deployment.rollback(1)
    assert sign_versions(repository, NAME, keys.private) == (1, 2)
    assert sign_versions(repository, NAME, keys.private) == ()
    assert deployment.rollback(1).version == 1


def test_an_older_version_does_not_pass_for_a_newer_one(signing, deployment, repository, tmp_path):
    deployment.deploy(signed(tmp_path / "a"), RUN)
    deployment.deploy(signed(tmp_path / "b", b"treeb"), RUN)
    deployment.rollback(1)
    replay(repository)
    with pytest.raises(ServingError, match=rf"version 2 is not .*: it was signed for {NAME}@{RUN}@1"):
        deployment.rollback(2)
    with pytest.raises(ServingError, match="signed for"):
        reconcile(deployment, lambda: 2)
    shutil.copy(tmp_path / "a" / SIGNATURE_FILE, repository.root / NAME / "2")
    with pytest.raises(ServingError, match=rf"signed for {NAME}@{RUN};"):
        deployment.rollback(2)
    assert repository.serving(NAME) == 1


def replay(repository):
    """Put the files of version 1 in the place of those of version 2, and say so in its record."""
    folder = repository.root / NAME
    shutil.copytree(folder / "1", folder / "2", dirs_exist_ok=True)
    about = json.loads((folder / "2/dmls.json").read_text())
    (folder / "2/dmls.json").write_text(json.dumps(about | {"version": 2}))


def test_a_model_of_another_run_is_refused(signing, deployment, repository, tmp_path):
    folder = signed(tmp_path / "a")
    for run_key in ("fedcba9876543210", ""):
        with pytest.raises(ServingError, match=rf"signed for {NAME}@{RUN}; train it again"):
            deployment.stage(folder, run_key)
    assert repository.versions(NAME) == ()


def test_a_version_is_written_only_where_it_can_be_signed(
    signing, deployment, repository, tmp_path, monkeypatch
):
    folder = signed(tmp_path / "a")
    monkeypatch.delenv("DMLS_SIGNING_KEY")
    with pytest.raises(PlatformError, match=r"cannot sign version 1 of lab\.iris: set DMLS_SIGNING_KEY"):
        deployment.stage(folder, RUN)
    assert repository.versions(NAME) == ()


def test_models_that_an_earlier_release_signed_for_their_job(signing, deployment, repository, keys, tmp_path):
    """A run is deployed, and its version signed; versions are refused until they are signed again, once."""
    for name in ("a", "b"):
        folder = toy_model_folder(tmp_path / name, checkpoint=name.encode())
        (folder / SIGNATURE_FILE).write_bytes(sign(folder, NAME, keys.private))
        deployment.deploy(folder, RUN)
    deployment.rollback(1)
    signature = repository.root / NAME / "2" / SIGNATURE_FILE
    shutil.copy(tmp_path / "b" / SIGNATURE_FILE, signature)
    with pytest.raises(ServingError, match=r"signed for lab\.iris; .*`dmls sign lab/iris` signs versions of"):
        deployment.rollback(2)
    shutil.copy(tmp_path / "a" / SIGNATURE_FILE, signature)
    with pytest.raises(ServingError, match=r"version 2 is not as a trainer signed it: checkpoint\.tl was"):
        sign_versions(repository, NAME, keys.private)
    shutil.copy(tmp_path / "b" / SIGNATURE_FILE, signature)
    assert sign_versions(repository, NAME, keys.private) == (2,)
    assert sign_versions(repository, NAME, keys.private) == ()
    assert deployment.rollback(2).version == 2
    deployment.rollback(1)
    replay(repository)
    with pytest.raises(ServingError, match=rf"signed for {NAME}@{RUN}@1"):
        deployment.rollback(2)
    with pytest.raises(ServingError, match=rf"signed for {NAME}@{RUN}@1"):
        sign_versions(repository, NAME, keys.private)


def test_an_embedded_platform_signs_earlier_versions_with_its_key(
    deployment, repository, tmp_path, monkeypatch
):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    context = Context(tmp_path / "state", load_identity(tmp_path / "state/identity.json"))
    shutil.copytree(repository.root, context.model_repository)
    sign_earlier_models(context)
    monkeypatch.setenv("DMLS_SIGNERS", signing_environment(context)["DMLS_SIGNERS"])
    with Repository(str(context.model_repository)).local_copy(NAME, 1) as folder:
        check_version_signature(folder, NAME, 1)


def test_a_damaged_version_is_not_signed(deployment, repository, keys, tmp_path):
    deployment.deploy(toy_model_folder(tmp_path / "a"))
    (repository.root / NAME / "1/checkpoint.tl").write_bytes(b"other")
    with pytest.raises(ServingError, match="damaged"):
        sign_versions(repository, NAME, keys.private)


def test_the_same_files_signed_again_are_the_same_version(signing, deployment, repository, tmp_path):
    folder = signed(tmp_path / "a")
    assert deployment.deploy(folder, RUN).version == 1
    sign_model(folder, NAME, RUN)
    assert deployment.deploy(folder, RUN).version == 1
    check_version(repository, NAME, 1)


def test_mlflow_loads_a_signed_model_and_no_other(signing, tmp_path):
    import mlflow.pyfunc
    from mlflow.models import Model

    trained_run(tmp_path / "run")
    folder = tmp_path / "run/model"
    sign_model(folder, "lab.flowers", RUN)
    with built_model(folder, Model(), {}) as built:
        changed = shutil.copytree(built, tmp_path / "changed")
        loaded = mlflow.pyfunc.load_model(str(built))
        assert len(loaded.predict(pd.DataFrame(user_rows(1)))) == 1
    encoder = changed / "artifacts/encoder.json"
    encoder.write_text(encoder.read_text().replace("0", "1", 1))
    with pytest.raises(ValueError, match=r"not as a trainer signed it: encoder\.json was changed"):
        mlflow.pyfunc.load_model(str(changed))
