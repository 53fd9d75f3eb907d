"""Publishing with parts of it killed, full, damaged or gone; Triton and S3 are the real ones."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dmls_core.devstack.supervisor import wait_until
from dmls_core.errors import ServingError
from dmls_core.serving import Deployment, Repository, choose_scaling
from dmls_core.serving.repository.options import read_scaling_choice
from dmls_core.serving.triton.model_config import SIMPLEST
from tests.services.seaweed import Seaweed
from tests.services.triton_server import new_triton
from tests.support.table_endpoint import change_encoder
from tests.support.trained_run import trained_run

numbers = itertools.count()

OTHER_LABELS = "put {name}.table/config.pbtxt"
"""A step that a version with other labels alone takes."""

STEPS = [
    "put {name}/{new}/dmls.json",
    "upload {name}.candidate/{new}/checkpoint.tl",
    "put {name}.table/{new}/encoder.json",
    "load {name}.candidate",
    "put .dmls/{name}/measured.json",
    "infer {name}.candidate",
    OTHER_LABELS,
    "put {name}/config.pbtxt",
    "load {name}",
    "finish",
    "put .dmls/{name}/record.json",
    "delete {name}.candidate/config.pbtxt",
]


SOME_STEPS = [
    "upload {name}.candidate/{new}/checkpoint.tl",
    "load {name}.candidate",
    "put {name}/config.pbtxt",
    "finish",
]
"""Before and after Triton is asked, and between Triton and MLflow."""


@pytest.fixture
def name() -> str:
    return f"lab.faults{next(numbers)}"


@pytest.fixture(autouse=True)
def models(request):
    """Take the models of each test from the server, which loads those that are there when it restarts."""
    yield
    if "triton" in request.fixturenames:
        request.getfixturevalue("triton").clear()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return ``model/`` folders of different content, of two forests in turn."""
    base = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        trained_run(base / str(seed), seed=seed)

    def make(number: int) -> Path:
        folder = base / f"model{number}"
        if not folder.exists():
            folder.mkdir()
            for file in (base / str(number % 2) / "model").iterdir():
                (folder / file.name).write_bytes(file.read_bytes())
            about = json.loads((folder / "model.json").read_text())
            (folder / "model.json").write_text(json.dumps(about | {"score": number}))
        return folder

    return make


def answers(client, name: str, folder: Path) -> bool:
    """Say whether the live endpoint answers as a model of ``folder`` does."""
    golden = json.loads((folder / "golden.json").read_text())
    rows = np.asarray(golden["encoded"], np.float32)
    return all(
        np.abs(client.infer(name, rows, protocol=protocol) - np.asarray(golden["expected"])).max() <= 1e-6
        for protocol in ("http", "grpc")
    )


@pytest.mark.parametrize(
    "steps",
    [SOME_STEPS, pytest.param(STEPS, marks=pytest.mark.nightly("all steps; `make test` takes four of them"))],
    ids=["some", "all"],
)
def test_killed_at_a_step_a_proven_version_answers_and_a_repeat_finishes(triton, made, name, steps):
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.support.publisher"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    repository = triton.repository
    try:
        with triton.client() as client:
            Deployment(repository, client, name).deploy(made(0))
            for number, step in enumerate(steps, start=1):
                (old,) = client.versions(name)
                if step == OTHER_LABELS:
                    change_encoder(made(number), lambda e: e["target"].update(labels=["x", "y", "z"]))
                named = step.format(name=name, new=number + 1)
                order = {
                    "repository": str(repository.root),
                    "http": client.addresses["http"],
                    "grpc": client.addresses["grpc"],
                    "model": name,
                    "folder": str(made(number)),
                    "step": named,
                }
                driver.stdin.write(json.dumps(order) + "\n")
                driver.stdin.flush()
                assert int(driver.stdout.readline()) == -signal.SIGKILL, f"it never came to: {named}"
                (live,) = client.versions(name)
                late = STEPS.index(step) > STEPS.index("load {name}")
                assert live == (number + 1 if late else old), f"after a kill before: {named}"
                assert answers(client, name, made(number if late else number - 1)), named
                assert Deployment(repository, client, name).deploy(made(number)).version == number + 1
                assert client.versions(name) == (number + 1,)
                assert client.versions(f"{name}.candidate") == ()
                assert repository.verified(name)[-1] == number + 1
                assert answers(client, name, made(number))
    finally:
        driver.stdin.close()
        driver.wait(30)


def test_a_disk_that_is_full_while_staging(triton, made, name):
    """The limit of a file's size stands for the disk's: both make the write itself fail."""
    with triton.client() as client:
        Deployment(triton.repository, client, name).deploy(made(0))
        code = (
            "import resource, signal, sys\n"
            "from pathlib import Path\n"
            "from dmls_core.serving import Deployment, Repository, TritonClient\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
            "root, http, grpc, name, folder = sys.argv[1:]\n"
            "deployment = Deployment(Repository(root), TritonClient(http, grpc), name)\n"
            "try:\n    deployment.deploy(Path(folder))\n"
            "except Exception as error:\n    print(type(error).__name__, error)\n"
        )
        root = str(triton.repository.root)
        command = [sys.executable, "-c", code, root, *client.addresses.values(), name, str(made(1))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert "ServingError cannot write a version" in done.stdout, done.stdout + done.stderr
        assert "File too large" in done.stdout
        assert client.versions(name) == (1,)
        assert triton.repository.versions(name) == (1,)
        assert answers(client, name, made(0))
        assert Deployment(triton.repository, client, name).deploy(made(1)).version == 2


def test_a_real_disk_that_is_full(triton, made, name, tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        repository = Repository(str(tmp_path / "models"))
        with triton.client() as client, pytest.raises(ServingError, match="No space left on device; free"):
            Deployment(repository, client, name).deploy(made(0))
        assert repository.versions(name) == ()
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.nightly("`make test` kills Triton at `load {name}`, and with the publisher after staging")
def test_triton_killed_between_load_and_verification(triton, made, name, monkeypatch):
    monkeypatch.setattr("dmls_core.serving.triton.loading.RESTART_SECONDS", 0.0)
    repository = triton.repository
    with triton.client(timeout=20.0) as client:
        Deployment(repository, client, name).deploy(made(0))
        staged = Deployment(repository, client, name).stage(made(1))
        triton.stop(signal.SIGKILL)
        try:
            with pytest.raises(ServingError, match=r"does not answer.*Version 1 is configured, but Triton"):
                Deployment(repository, client, name).promote(staged.version)
            with pytest.raises(ServingError, match="does not answer"):
                Deployment(repository, client, name).rollback(1)
        finally:
            triton.start()
    with triton.client() as client:
        wait_until(lambda: client.versions(name) == (1,), 60)
        assert answers(client, name, made(0))
        assert Deployment(repository, client, name).deploy(made(1)).version == 2


@pytest.mark.parametrize(
    "step",
    [
        "load {name}",
        pytest.param(
            "load {name}.candidate", marks=pytest.mark.nightly("`make test` kills at `load {name}`")
        ),
    ],
)
def test_a_model_that_kills_its_server_is_not_loaded_again(triton, made, name, step, monkeypatch):
    """The server restarts, as under a supervisor, and serves the version before, by itself."""
    monkeypatch.setattr("dmls_core.serving.triton.loading.RESTART_SECONDS", 300.0)
    repository = triton.repository
    with triton.client(timeout=20.0) as client:
        Deployment(repository, client, name).deploy(made(0))
        load, restarts = client.load, []

        def restart():
            triton.start()

        def load_and_die(loaded):
            load(loaded)
            if loaded == step.format(name=name).removeprefix("load ") and not restarts:
                triton.stop(signal.SIGKILL)
                restarts.append(threading.Thread(target=restart))
                restarts[0].start()
                raise ServingError("Triton does not answer")

        client.load = load_and_die
        try:
            with pytest.raises(ServingError, match=r"ended and restarted: version 1 is served again"):
                Deployment(repository, client, name).deploy(made(1))
        finally:
            restarts[0].join()
        assert client.versions(name) == repository.verified(name) == (1,)
        assert client.versions(f"{name}.candidate") == ()
        assert answers(client, name, made(0))


def test_publisher_and_server_killed_together(triton, made, name):
    """The start of the server restores the configuration."""
    repository = triton.repository
    with triton.client(timeout=20.0) as client:
        Deployment(repository, client, name).deploy(made(0))
        Deployment(repository, client, name).stage(made(1))
        Deployment(repository, client, "lab.damaged").deploy(made(0))
    repository.serve(name, 2, previous=1)
    (repository.root / "lab.damaged" / "1" / "checkpoint.tl").write_bytes(b"no forest")
    triton.stop(signal.SIGKILL)
    triton.start()
    with triton.client(timeout=20.0) as client:
        assert client.versions(name) == (1,)
        assert client.versions(f"{name}.candidate") == ()
        assert answers(client, name, made(0))
        assert client.versions("lab.damaged") == (), "a forest whose file has changed is not loaded"
        assert client.live()


def test_a_nan_among_the_golden_rows_and_a_wrong_checksum(triton, made, name, tmp_path):
    with triton.client() as client:
        Deployment(triton.repository, client, name).deploy(made(0))
        folder = tmp_path / "model"
        folder.mkdir()
        for file in made(1).iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        golden = json.loads((folder / "golden.json").read_text())
        golden["expected"][2][1] = float("nan")
        (folder / "golden.json").write_text(json.dumps(golden))
        with pytest.raises(ServingError, match=r"no usable golden rows.*Version 1 is still served"):
            Deployment(triton.repository, client, name).deploy(folder)
        staged = Deployment(triton.repository, client, name).stage(made(1))
        (triton.repository.root / name / str(staged.version) / "checkpoint.tl").write_bytes(b"other")
        with pytest.raises(ServingError, match=r"checkpoint\.tl is damaged: its SHA-256 is"):
            Deployment(triton.repository, client, name).promote(staged.version)
        assert client.versions(name) == (1,)
        assert answers(client, name, made(0))


@pytest.fixture(scope="module")
def on_s3(tmp_path_factory):
    """A Triton server whose repository is in S3; with S3's process and Triton's key."""
    patch = pytest.MonkeyPatch()
    seaweed = Seaweed(tmp_path_factory.mktemp("seaweed"))
    server = seaweed.start()
    for variable, value in server.environment.items():
        patch.setenv(variable, value)
    bucket = server.bucket()
    repository = Repository(f"s3://{bucket}/models")
    repository.store.put(".dmls/repository.json", b"{}")  # Triton refuses a folder that is not there
    triton = new_triton(
        tmp_path_factory.mktemp("triton-s3"),
        repository=f"s3://{server.endpoint_url}/{bucket}/models",
        key="let-me-load",
    )
    try:
        triton.start()
        yield triton, repository, seaweed
    finally:
        triton.stop()
        seaweed.kill()
        patch.undo()


def test_a_repository_in_s3(on_s3, made):
    triton, repository, seaweed = on_s3
    name = "lab.remote"
    with triton.client(key="") as stranger, pytest.raises(ServingError, match="restricted"):
        Deployment(repository, stranger, name).deploy(made(0))
    with triton.client(key="let-me-load", load_timeout=120) as client:
        assert Deployment(repository, client, name).deploy(made(0)).version == 1
        staged = Deployment(repository, client, name).stage(made(1))
        chosen = choose_scaling(Deployment(repository, client, name), staged.version)
        assert [found.scaling for found in chosen.measured][:1] in ([SIMPLEST], []), "or time was up"
        assert Deployment(repository, client, name).promote(staged.version).version == 2
        assert read_scaling_choice(repository.store, name, 2) == chosen
        for version in (1, 2, 1):  # within seconds: S3 says times in whole ones
            assert Deployment(repository, client, name).rollback(version).version == version
            assert client.versions(name) == (version,)
            assert answers(client, name, made(version - 1))
        entered, messages = threading.Event(), []
        with repository.lock(name):
            entered.set()
            try:
                with repository.lock(name, timeout=0.5):
                    pass
            except ServingError as error:
                messages.append(str(error))
        assert "is being published by another publisher (process" in messages[0]
        seaweed.kill()
        try:
            assert answers(client, name, made(0)), "Triton answers without S3"
            with pytest.raises(ServingError, match=r"cannot .*(lock|write|connect)"):
                Deployment(repository, client, name).deploy(made(3))
        finally:
            seaweed.start()
        assert answers(client, name, made(0))
        assert Deployment(repository, client, name).deploy(made(3)).version == 3
