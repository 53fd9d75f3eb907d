from __future__ import annotations

import json
import shutil
import threading

import pytest

from dmls_core.errors import NotFoundError, PlatformError, ServingError
from dmls_core.serving.repository.repository import MODEL_FILES, Repository
from tests.support.model_folder import toy_model_folder

NAME = "lab.iris"


def add(repository, folder):
    with repository.lock(NAME):
        return repository.add(NAME, folder)


def test_a_version_holds_the_models_files_and_their_checksums(repository, tmp_path):
    folder = toy_model_folder(tmp_path / "run")
    assert add(repository, folder) == 1
    version = repository.root / NAME / "1"
    files = {"checkpoint.tl", *MODEL_FILES}
    assert {path.name for path in version.iterdir()} == files | {"dmls.json"}
    for file in files:
        assert (version / file).read_bytes() == (folder / file).read_bytes()
    assert set(repository.read(NAME, 1, "dmls.json")["sha256"]) == files


def test_the_same_content_is_the_same_version_and_other_content_the_next(repository, tmp_path):
    first, second = (
        toy_model_folder(tmp_path / "a"),
        toy_model_folder(tmp_path / "b", checkpoint=b"more trees"),
    )
    assert [add(repository, folder) for folder in (first, second, first, second)] == [1, 2, 1, 2]
    encoder = json.loads((second / "encoder.json").read_text())
    encoder["features"][0]["fill"] = 9.0
    (second / "encoder.json").write_text(json.dumps(encoder))
    assert add(repository, second) == 3, "the encoder is part of what is served"


def test_a_number_is_never_used_twice(repository, tmp_path):
    add(repository, toy_model_folder(tmp_path / "a"))
    with repository.lock(NAME):
        repository.confirm(NAME, 1)
    shutil.rmtree(repository.root / NAME / "1")
    assert add(repository, toy_model_folder(tmp_path / "b", checkpoint=b"b")) == 2


def test_an_incomplete_copy_is_not_a_version(repository, tmp_path):
    half = repository.root / NAME / "1"
    half.mkdir(parents=True)
    (half / "checkpoint.tl").write_bytes(b"half")
    assert repository.versions(NAME) == ()
    folder = toy_model_folder(tmp_path / "run")
    assert add(repository, folder) == 1
    assert (half / "checkpoint.tl").read_bytes() == (folder / "checkpoint.tl").read_bytes()


def test_code_of_a_trainer_does_not_reach_triton(repository, tmp_path):
    folder = toy_model_folder(tmp_path / "run")
    (folder / "numpy.py").write_text("raise SystemExit")
    with pytest.raises(ServingError, match=r"lab\.iris holds code, which Triton might import: numpy\.py"):
        add(repository, folder)
    assert repository.versions(NAME) == ()


def test_a_damaged_copy_is_an_error(repository, tmp_path, monkeypatch):
    def lose_the_end(key, path):
        return repository.store.put(key, path.read_bytes()[:-1])

    monkeypatch.setattr(repository.store, "upload", lose_the_end)
    with pytest.raises(ServingError, match=r"checkpoint.tl is damaged: its SHA-256 is"):
        add(repository, toy_model_folder(tmp_path / "run"))
    assert repository.versions(NAME) == ()


def test_a_run_without_its_encoder_is_rejected(repository, tmp_path):
    folder = toy_model_folder(tmp_path / "run")
    (folder / "encoder.json").unlink()
    with pytest.raises(ServingError, match=r"encoder\.json"):
        add(repository, folder)


def test_an_unchanged_configuration_is_not_written_again(repository, tmp_path):
    add(repository, toy_model_folder(tmp_path / "a"))
    add(repository, toy_model_folder(tmp_path / "b", labels=None))
    config = repository.root / NAME / "config.pbtxt"
    with repository.lock(NAME):
        assert repository.serving(NAME) is None
        repository.serve(NAME, 1)
        assert repository.serving(NAME) == 1
        assert "dims: [ 3 ]" in config.read_text()
        before = config.stat().st_mtime_ns
        repository.serve(NAME, 1)
        assert config.stat().st_mtime_ns == before, "Triton would reload"
        repository.serve(NAME, 2)
        assert repository.serving(NAME) == 2
        assert "dims: [ 1 ]" in config.read_text()
        repository.serve(NAME, None)
        assert repository.serving(NAME) is None
        with pytest.raises(NotFoundError):
            repository.serve(NAME, 7)


def test_previous_is_the_last_other_verified_version(repository):
    with repository.lock(NAME):
        assert repository.previous(NAME, 1) is None
        for version in (1, 2, 4):
            (repository.root / NAME / str(version)).mkdir(parents=True)
            (repository.root / NAME / str(version) / "dmls.json").write_text("{}")
            repository.confirm(NAME, version)
        assert repository.previous(NAME, 5) == 4
        assert repository.previous(NAME, 4) == 2
        repository.confirm(NAME, 2)
        assert repository.previous(NAME, 5) == 2
        assert repository.previous(NAME, 2) == 4


def test_one_publisher_at_a_time(repository):
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with repository.lock(NAME):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(10)
    with repository.lock("lab.wine"):
        pass  # another model is free
    with (
        pytest.raises(ServingError, match=r"is being published by another publisher \(process \d+ on "),
        repository.lock(NAME, timeout=0.1),
    ):
        pass
    leave.set()
    thread.join()
    with repository.lock(NAME, timeout=1):
        pass


def test_two_publishers_at_once_make_two_versions(repository, tmp_path):
    folders = [toy_model_folder(tmp_path / str(i), checkpoint=b"%d" % i) for i in range(4)]
    made: list[int] = []
    threads = [threading.Thread(target=lambda f=f: made.append(add(repository, f))) for f in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [1, 2, 3, 4]


@pytest.mark.parametrize("url", ["", "http://host/models", "s3://http://host:8333/bucket/models"])
def test_other_urls_are_not_repositories(url):
    with pytest.raises(PlatformError):
        Repository(url)


def test_damaged_files_are_named(repository, tmp_path):
    add(repository, toy_model_folder(tmp_path / "a"))
    (repository.root / NAME / "1" / "golden.json").write_text("{")
    with pytest.raises(ServingError, match=r"golden.json is damaged"):
        repository.read(NAME, 1, "golden.json")
    with pytest.raises(NotFoundError):
        repository.read(NAME, 2, "golden.json")
