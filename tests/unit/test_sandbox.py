"""The sandbox: what crosses, what a dying child costs, and what the child cannot see."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from dmls_core import sandbox
from dmls_core.errors import PlatformError, SpecError
from dmls_core.sandbox import Limits, SandboxError, Worker
from tests.unit import sandboxed

ROOT = Path(__file__).parents[2]

FAST = Limits(seconds=0.5)


@pytest.fixture(autouse=True)
def warm_sandbox() -> None:
    """Give each call a child of its own."""


def test_arguments_and_the_answer_cross_as_json() -> None:
    assert sandbox.run(sandboxed.echo, 1, ["ü\ud800"], {"a": None}) == [1, ["ü\ud800"], {"a": None}]


@pytest.mark.parametrize(
    ("function", "args", "limits", "cause"),
    [
        (sandboxed.abort, (), Limits(), "was ended by SIGABRT"),
        (sandboxed.segfault, (), Limits(), "was ended by SIGSEGV"),
        (sandboxed.leave, (3,), Limits(), "ended with exit code 3"),
        (sandboxed.sleep, (60,), FAST, r"took longer than 0\.5 s"),
        (sandboxed.burn, (), Limits(cpu_seconds=1), "took more than 1 s of CPU time"),
        (sandboxed.allocate, (300 << 20,), Limits(memory=256 << 20), "needed more than 268,435,456 bytes"),
        (sandboxed.abort_for_memory, (), Limits(memory=1 << 30), "needed more than 1,073,741,824 bytes"),
    ],
)
def test_a_dying_child_is_one_clear_error(function: Any, args: Any, limits: Limits, cause: str) -> None:
    with pytest.raises(SandboxError, match=rf"a\.csv: the file cannot be read \(found .*{cause}.*damaged"):
        sandbox.run(function, *args, limits=limits, file="a.csv")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP])
def test_a_child_that_is_killed_from_outside_says_nothing_about_the_file(number: signal.Signals) -> None:
    with pytest.raises(
        PlatformError, match=rf"read a\.csv was ended from outside by {number.name}.*try again"
    ):
        sandbox.run(sandboxed.receive, number, file="a.csv")


def test_a_child_that_does_not_start_in_time_says_nothing_about_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "START_SECONDS", 0.001)
    with pytest.raises(PlatformError, match=r"did not start within 0\.001 s"):
        sandbox.run(sandboxed.process)


def test_what_libraries_print_is_shown_only_if_the_call_itself_fails(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SpecError):
        sandbox.run(sandboxed.reject)
    sandbox.run(sandboxed.echo)
    logged = [record for record in caplog.records if record.name == sandbox.__name__]
    assert (capfd.readouterr().err, logged) == ("", [])
    with pytest.raises(PlatformError):
        sandbox.run(sandboxed.break_down)
    assert "Traceback" in caplog.text


def test_an_error_of_an_extension_crosses_as_its_base() -> None:
    with pytest.raises(SpecError, match="of an extension"):
        sandbox.run(sandboxed.reject_as_an_extension)


def test_a_file_within_the_memory_limit_can_be_read() -> None:
    assert sandbox.run(sandboxed.allocate, 300 << 20, limits=Limits(memory=512 << 20)) == 300 << 20


def test_errors_of_the_function_keep_their_class_and_issues() -> None:
    with pytest.raises(SpecError) as caught:
        sandbox.run(sandboxed.reject)
    assert [issue.line for issue in caught.value.issues] == [3, None]
    with pytest.raises(PlatformError, match="^no service$"):
        sandbox.run(sandboxed.fail_platform)


def test_an_unexpected_exception_is_a_platform_error_that_names_the_function() -> None:
    with pytest.raises(PlatformError, match=r"tests\.unit\.sandboxed:break_down: KeyError\('x'\)"):
        sandbox.run(sandboxed.break_down)


@pytest.mark.parametrize(("python", "message"), [("false", "exit code 1"), ("missing", "cannot start")])
def test_a_child_that_cannot_start_is_a_platform_error(
    monkeypatch: pytest.MonkeyPatch, python: str, message: str
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which(python) or "/missing")
    with pytest.raises(PlatformError, match=message):
        sandbox.run(sandboxed.process)


def test_only_functions_that_the_child_can_import_are_accepted() -> None:
    def local() -> None:
        """Cannot be imported."""

    for function in (local, lambda: None):
        with pytest.raises(TypeError, match="not a function at the top level of an importable module"):
            sandbox.run(function)


def test_the_child_inherits_no_credentials_but_the_limits_of_the_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = (
        "AWS_SECRET_ACCESS_KEY",
        "AIRFLOW__CORE__FERNET_KEY",
        "DMLS_ROOT",
        "MY_TOKEN",
        "DMLS_DATA_ROWS",
        "A",
    )
    for name in names:
        monkeypatch.setenv(name, "1")

    assert sandbox.run(sandboxed.variables, *names) == [None, None, None, None, "1", "1"]


def test_the_child_does_not_import_from_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit")

    assert str(tmp_path) not in sandbox.run(sandboxed.path)


def test_a_worker_keeps_its_process_until_it_dies_or_the_limits_change() -> None:
    with Worker() as worker:
        first = worker.call(sandboxed.process)
        assert worker.call(sandboxed.process) == first
        with pytest.raises(SandboxError):
            worker.call(sandboxed.abort)
        second = worker.call(sandboxed.process)
        third = worker.call(sandboxed.process, limits=Limits(memory=2 << 30))
    assert len({first, second, third}) == 3


def test_a_worker_replaces_a_process_that_used_much_memory() -> None:
    with Worker(Limits(memory=512 << 20)) as worker:
        first = worker.call(sandboxed.process)
        worker.call(sandboxed.allocate, 200 << 20)
        assert worker.call(sandboxed.process) != first


def test_a_worker_keeps_a_process_whose_libraries_are_large(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(bytes(200 << 20))
    with Worker(Limits(memory=512 << 20)) as worker:
        first = worker.call(sandboxed.process)
        worker.call(sandboxed.map_file, str(library))
        assert worker.call(sandboxed.process) == first


def test_the_limit_of_cpu_time_counts_each_call_alone() -> None:
    with Worker(Limits(cpu_seconds=1)) as worker:
        first = worker.call(sandboxed.process)
        for _ in range(3):
            worker.call(sandboxed.spin, 0.5)
        assert worker.call(sandboxed.process) == first


def test_a_function_asks_its_caller() -> None:
    with Worker() as worker:
        assert worker.call(sandboxed.total, 3, reply=lambda question: 10 * question["item"]) == 30
        with pytest.raises(PlatformError, match="asks for data"):
            worker.call(sandboxed.total, 3)
        with pytest.raises(ZeroDivisionError):
            worker.call(sandboxed.total, 3, reply=lambda _: 1 / 0)
        assert worker.call(sandboxed.total, 1, reply=lambda _: 5) == 5
    with pytest.raises(RuntimeError, match="in a sandbox"):
        sandbox.ask(1)


def test_a_started_call_runs_while_the_caller_goes_on(tmp_path: Path) -> None:
    call = sandbox.start(sandboxed.echo, 7, log=tmp_path / "log")
    assert (call.result(), call.result()) == ([7], [7])
    assert call.finished
    assert (tmp_path / "log").read_text() == "this is no answer\n"

    call = sandbox.start(sandboxed.sleep, 60)
    assert not call.finished
    with pytest.raises(SandboxError, match=r"took longer than 0\.1 s"):
        call.result(0.1)
    assert call.finished
    with pytest.raises(SandboxError, match=r"took longer than 0\.1 s"):
        call.result()


PROCESS_1 = (
    "from dmls_core import sandbox; from tests.unit import sandboxed; print(sandbox.run(sandboxed.echo, 5))"
)


def test_it_runs_where_the_parent_is_process_1() -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    try:
        subprocess.run([*unshare, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine allows no PID namespace")

    done = subprocess.run(
        [*unshare, sys.executable, "-c", PROCESS_1], check=True, capture_output=True, text=True, cwd=ROOT
    )

    assert done.stdout == "[5]\n"


def test_the_child_ends_with_a_parent_that_is_killed() -> None:
    parent = textwrap.dedent("""
        from dmls_core import sandbox
        from tests.unit import sandboxed
        print(sandbox.start(sandboxed.sleep, 600).pid, flush=True)
        sandboxed.sleep(600)
    """)
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout
    child = int(process.stdout.readline())
    process.kill()
    process.communicate()

    deadline = time.monotonic() + 30
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_another_program_runs_under_the_memory_limit() -> None:
    code = "import os; print(os.getppid()); bytearray(600 << 20)"

    done = subprocess.run(
        sandbox.command([sys.executable, "-c", code], 512 << 20), capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (1, f"{os.getpid()}\n")
    assert "MemoryError" in done.stderr


def test_a_lower_priority_is_that_of_a_session_of_its_own():
    """Linux may share the CPU among sessions first, whatever the niceness of their processes."""
    found = sandbox.run(sandboxed.priority, limits=Limits(nice=5))
    assert found["nice"] == min(os.nice(0) + 5, 19)
    assert found["session"] == found["process"]
    assert sandbox.run(sandboxed.priority)["nice"] == os.nice(0)


def test_children_import_neither_airflow_nor_the_page() -> None:
    # Their libraries cost 3 to 4 CPU seconds for each file that is looked at.
    modules = ["data.request_rows", "intake.schema_inference.parquet_sample", "training.plan"]
    code = "import sys\n" + "".join(f"import dmls_core.{module}\n" for module in modules)
    code += "print({'airflow', 'fastapi'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
    callers = [ROOT / "dmls_core/web", ROOT / "dmls_core/airflow"]
    calls = [path.read_text() for folder in callers for path in folder.rglob("*.py")]
    for function in re.findall(r"sandbox\.(?:run|start)\(\s*(\w+)", "\n".join(calls)):
        assert not any(f"\ndef {function}(" in text for text in calls), function
