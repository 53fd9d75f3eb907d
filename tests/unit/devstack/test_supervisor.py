"""A real supervisord, with a harmless program."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmls_core.devstack.context import Context, Identity
from dmls_core.devstack.processes import ID_VARIABLE, SERVICE_VARIABLE
from dmls_core.devstack.startup import Startup
from dmls_core.devstack.supervisor import Service, Stop, Supervisor, run_logged
from dmls_core.errors import PlatformError


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    runtime = Path(tempfile.mkdtemp(prefix="dmls-", dir="/tmp"))
    folder = tmp_path / "a folder, 100 % odd"
    (folder / "logs").mkdir(parents=True)
    (folder / "services").mkdir()
    supervisor = Supervisor("dmls-test", folder, runtime, os.environ | {ID_VARIABLE: runtime.name})
    supervisor.configure({"sleeper": Stop("TERM", 1), "broken": Stop("TERM", 1)})
    for name, code in {
        "sleeper": "import time; print('awake', flush=True); time.sleep(99)",
        "broken": "1/0",
    }.items():
        service = {
            "command": [sys.executable, "-c", code],
            "environment": {SERVICE_VARIABLE: name},
            "folder": str(folder),
        }
        (folder / "services" / f"{name}.json").write_text(json.dumps(service))
    supervisor.start()
    yield supervisor
    supervisor.shut_down(10)
    assert not supervisor.answers()
    shutil.rmtree(runtime)


def wait(supervisor: Supervisor, name: str, state: str, seconds: float = 30) -> dict[str, object]:
    end = time.monotonic() + seconds
    while (info := supervisor.info(name))["statename"] != state:
        assert time.monotonic() < end, info
        time.sleep(0.05)
    return info


def test_programs_start_stop_and_come_back(supervisor: Supervisor):
    assert {n: e["statename"] for n, e in supervisor.states().items()} == {
        "sleeper": "STOPPED",
        "broken": "STOPPED",
    }
    supervisor.start_program("sleeper")
    supervisor.start_program("sleeper")
    info = wait(supervisor, "sleeper", "RUNNING")
    deadline = time.monotonic() + 30
    while "awake" not in supervisor.log_of("sleeper").read_text():  # it runs before its first line is there
        assert time.monotonic() < deadline
        time.sleep(0.05)

    os.kill(int(str(info["pid"])), 9)
    deadline = time.monotonic() + 30
    while supervisor.info("sleeper")["pid"] in (0, info["pid"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    supervisor.stop_program("sleeper")
    supervisor.stop_program("sleeper")
    assert supervisor.info("sleeper")["statename"] == "STOPPED"


def test_a_service_is_waited_for_as_long_as_it_writes(supervisor: Supervisor, tmp_path: Path):
    context = Context(supervisor.folder, Identity(id="0", runtime=str(tmp_path), credentials={}, ports={}))
    startup = Startup(context, supervisor, "process", {})
    up = tmp_path / "up"
    code = "import pathlib, time; [(print(n, flush=True), time.sleep(0.1)) for n in range(19)]"
    code += f"; pathlib.Path({str(up)!r}).touch(); time.sleep(99)"

    def serve(code: str, seconds: float) -> None:
        command = [sys.executable, "-c", code]
        service = Service("sleeper", command, tmp_path, lambda _: up.exists(), seconds=seconds)
        startup._serve(service, threading.Event())

    with pytest.raises(PlatformError, match=r"no answer after 0 s(.*\n)+.*`dmls up` goes on from here"):
        serve("import time; time.sleep(99)", 0.1)
    serve(code, 1.5)


def test_its_socket_and_files_are_private(supervisor: Supervisor):
    for path in (supervisor.socket, supervisor.folder / "supervisord.conf"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_another_platforms_supervisor_is_not_taken_for_ours(supervisor: Supervisor):
    other = Supervisor("dmls-other", supervisor.folder, supervisor.socket.parent, {})
    assert supervisor.answers()
    assert not other.answers()


def test_without_a_supervisor_calls_fail_clearly(tmp_path: Path):
    gone = Supervisor("dmls-gone", tmp_path, tmp_path, {})
    assert not gone.answers()
    with pytest.raises(PlatformError, match="does not answer"):
        gone.states()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([sys.executable, "-c", "print('no space'); raise SystemExit(3)"], r"make failed\nno space\nsee "),
        (["/nonexistent"], r"make failed: .*No such file"),
        (
            [sys.executable, "-c", "import time; time.sleep(60)"],
            r"make failed: .*timed out after 0\.\d+ seconds",
        ),
    ],
)
def test_a_failed_command_shows_why_and_the_end_of_its_log(tmp_path: Path, command: list[str], message: str):
    with pytest.raises(PlatformError, match=message):
        run_logged(command, {}, tmp_path / "log", 0.5 if "60" in command[-1] else 30, name="make")
