from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dmls_core.devstack.context import Context
from dmls_core.devstack.triton import find_genuine, find_requirements, running_backend, triton_service
from dmls_core.errors import PlatformError


def make_server(folder: Path, *, fil: bool) -> Path:
    program = folder / "bin" / "tritonserver"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    (folder / "backends" / "fil").mkdir(parents=True)
    if fil:
        (folder / "backends" / "fil" / "libtriton_fil.so").touch()
    return program


@pytest.fixture(autouse=True)
def no_server_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DMLS_TRITON_SERVER", raising=False)
    monkeypatch.setattr("dmls_core.devstack.triton.USUAL_PLACE", "/nonexistent")
    monkeypatch.setenv("PATH", "/nonexistent")


def test_without_a_genuine_server_there_is_none():
    assert find_genuine() is None


def test_the_named_server_is_used_with_its_own_backends(
    tmp_path: Path, context: Context, monkeypatch: pytest.MonkeyPatch
):
    program = make_server(tmp_path / "triton", fil=True)
    monkeypatch.setenv("DMLS_TRITON_SERVER", str(program))
    server = find_genuine()
    assert server is not None
    assert server.genuine
    assert "genuine" in server.description
    service = triton_service(context, server)
    command = service.command
    assert str(program) in command
    assert f"--backend-directory={tmp_path}/triton/backends" in command
    assert "--model-control-mode=explicit" in command
    (prefix,) = (word.rpartition("=")[2] for word in command if word.startswith("--backend-config=python,"))
    assert prefix == f"dmls-{context.identity.id}-"
    assert service.stale == (f"/dev/shm/{prefix}*",)


def test_a_genuine_server_finds_its_libraries_and_uses_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = make_server(tmp_path / "triton", fil=True)
    for name in ("DMLS_TRITON_SERVER", "LD_LIBRARY_PATH", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DMLS_TRITON_SERVER", str(program))
    server = find_genuine()
    assert server is not None
    assert server.environment == {
        "LD_LIBRARY_PATH": f"{tmp_path}/triton/lib",
        "PATH": f"/nonexistent:{tmp_path}/triton/bin",
        "OMP_NUM_THREADS": "1",
    }


def test_an_operators_environment_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DMLS_TRITON_SERVER", str(make_server(tmp_path / "triton", fil=True)))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/own")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    server = find_genuine()
    assert server is not None
    assert server.environment["LD_LIBRARY_PATH"] == f"/opt/own:{tmp_path}/triton/lib"
    assert server.environment["OMP_NUM_THREADS"] == "4"


@pytest.mark.parametrize("fil", [True, False])
def test_a_running_server_is_asked_by_its_command(tmp_path: Path, fil: bool):
    make_server(tmp_path, fil=fil)
    command = [sys.executable, "-c", "print(flush=True); input()", f"--backend-directory={tmp_path}/backends"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before, its command may not be there yet
        assert running_backend(process.pid) == ("genuine" if fil else "stand-in")
        process.kill()


def test_a_named_server_without_a_genuine_fil_backend_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DMLS_TRITON_SERVER", str(make_server(tmp_path / "triton", fil=False)))
    with pytest.raises(PlatformError, match=r"libtriton_fil\.so"):
        find_genuine()


def test_an_installed_server_counts_only_with_a_genuine_fil_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    without = make_server(tmp_path / "without", fil=False)
    monkeypatch.setenv("PATH", str(without.parent))
    assert find_genuine() is None
    program = make_server(tmp_path / "with", fil=True)
    monkeypatch.setenv("PATH", str(program.parent))
    found = find_genuine()
    assert found is not None
    assert found.program == program


def test_the_locked_requirements_pin_numpy_before_2_with_hashes():
    lines = find_requirements().read_text()
    assert "numpy==1.26" in lines
    assert "nvidia-pytriton==0.7.0" in lines
    assert "--hash=sha256:" in lines
