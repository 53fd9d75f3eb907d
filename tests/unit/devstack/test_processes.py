from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dmls_core.devstack import processes
from dmls_core.devstack.processes import ID_VARIABLE, SERVICE_VARIABLE, end_marked, find_marked

DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
)
MEEK = "import time; print(flush=True); time.sleep(600)"


class Herd:
    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, code: str = MEEK, argv0: str | None = None, **variables: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [argv0 or sys.executable, "-c", code],
            executable=sys.executable,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process


@pytest.fixture
def herd(monkeypatch: pytest.MonkeyPatch) -> Iterator[Herd]:
    monkeypatch.setattr(processes, "TERM_SECONDS", 0.5)
    herd = Herd()
    yield herd
    for process in herd.processes:
        process.kill()
        process.communicate()


def test_only_the_processes_of_this_platform_are_found(herd: Herd):
    trainer = herd.start(**{ID_VARIABLE: herd.id})
    service = herd.start(**{ID_VARIABLE: herd.id, SERVICE_VARIABLE: "mlflow"})
    herd.start(**{ID_VARIABLE: herd.id + "0"})
    herd.start()
    found = {m.process.pid: m.service for m in find_marked(herd.id)}
    assert found == {trainer.pid: "", service.pid: "mlflow"}


def test_postgres_is_found_by_its_title_since_it_overwrites_its_environment(herd: Herd):
    named = herd.start(MEEK + f"  # dmls-{herd.id}", argv0="/somewhere/bin/postgres")
    herd.start(MEEK + f"  # dmls-{herd.id}", argv0="/usr/bin/editor")
    herd.start(MEEK + f"  # dmls-{herd.id}0", argv0="postgres")
    assert [(m.process.pid, m.service) for m in find_marked(herd.id)] == [(named.pid, "postgres")]


def test_the_deaf_are_killed_and_others_left_alone(herd: Herd):
    deaf = herd.start(DEAF, **{ID_VARIABLE: herd.id, SERVICE_VARIABLE: "a"})
    meek = herd.start(**{ID_VARIABLE: herd.id, SERVICE_VARIABLE: "a"})
    other = herd.start(**{ID_VARIABLE: herd.id, SERVICE_VARIABLE: "b"})
    trainer = herd.start(**{ID_VARIABLE: herd.id})
    assert {m.process.pid for m in end_marked(herd.id, "a")} == {deaf.pid, meek.pid}
    assert (deaf.wait(5), meek.wait(5)) == (-9, -15)
    assert other.poll() is None
    assert trainer.poll() is None
    assert {m.process.pid: m.service for m in end_marked(herd.id)} == {other.pid: "b", trainer.pid: ""}
    assert end_marked(herd.id) == []


def test_a_process_never_ends_itself_nor_its_ancestors(herd: Herd, monkeypatch: pytest.MonkeyPatch):
    code = f"from dmls_core.devstack.processes import end_marked; print(end_marked({herd.id!r}))"
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -c "$CODE"; exit $?'],
        env=os.environ | {ID_VARIABLE: herd.id, "CODE": code},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n")


def launch(file: Path, platform_id: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dmls_core.devstack.processes", str(file)],
        env=os.environ | {ID_VARIABLE: platform_id},
        capture_output=True,
        text=True,
        timeout=60,
    )


def service_file(tmp_path: Path, code: str, **more: object) -> Path:
    file = tmp_path / "some.json"
    service = {
        "command": [sys.executable, "-c", code],
        "environment": {SERVICE_VARIABLE: "some", "SECRET": "x"},
        "folder": str(tmp_path),
        "stale": [],
    }
    file.write_text(json.dumps(service | more))
    return file


def test_it_becomes_the_service_with_its_environment_and_folder(tmp_path: Path):
    code = "import os; print(os.getcwd(), os.environ['SECRET'], os.environ['DMLS_SERVICE'])"
    done = launch(service_file(tmp_path, code), "id")
    assert done.stdout.split() == [str(tmp_path), "x", "some"], done.stderr


def test_it_removes_what_a_killed_predecessor_left(tmp_path: Path):
    platform_id = secrets.token_hex(8)
    (tmp_path / "left.sock.1").touch()
    (tmp_path / "kept").touch()
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"],
        env=os.environ | {ID_VARIABLE: platform_id, SERVICE_VARIABLE: "some"},
        stdout=subprocess.PIPE,
    )
    trainer = subprocess.Popen(["sleep", "600"], env=os.environ | {ID_VARIABLE: platform_id})
    try:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        file = service_file(tmp_path, "", stale=[str(tmp_path / "left.sock.*"), str(tmp_path / "never")])
        assert launch(file, platform_id).returncode == 0
        assert orphan.wait(60) == -15
        assert trainer.poll() is None
        assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "some.json"]
    finally:
        for process in (orphan, trainer):
            process.kill()
            process.communicate()


def test_it_starts_without_heavy_imports():
    code = "import sys, dmls_core.devstack.processes; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"airflow", "boto3", "numpy", "mlflow", "psycopg", "dmls_core.devstack.platform"}
    assert not heavy & set(done.stdout.split())
    assert psutil.__name__ in done.stdout.split()


def test_late_arguments_are_computed_at_each_start(tmp_path: Path):
    file = service_file(
        tmp_path, "import sys; print(sys.argv[1:])", late_arguments=["late:arguments", "load"]
    )
    (tmp_path / "late.py").write_text("def arguments(name): return [f'--{name}=' + open('late').read()]")
    for text in ("one", "two"):
        (tmp_path / "late").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "dmls_core.devstack.processes", str(file)],
            env=os.environ | {ID_VARIABLE: "id", "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.strip() == f"['--load={text}']", done.stderr
