from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator

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
    assert sorted(end_marked(herd.id, "a")) == sorted([deaf.pid, meek.pid])
    assert (deaf.wait(5), meek.wait(5)) == (-9, -15)
    assert other.poll() is None
    assert trainer.poll() is None
    assert sorted(end_marked(herd.id)) == sorted([other.pid, trainer.pid])
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
