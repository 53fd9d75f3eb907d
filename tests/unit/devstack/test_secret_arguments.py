from __future__ import annotations

import subprocess
import sys

import pytest

from dmls_core.devstack import secret_arguments

SHOW = """
import os, sys
from pathlib import Path
print(Path("/proc/self/cmdline").read_text().split("\\0")[3:-1], sys.argv[1:], os.getpid())
"""


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", secret_arguments.__file__, *command],
        env={"KEY": "let=me in", "EMPTY": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_program_gets_secrets_that_its_command_line_does_not_show():
    words = ["--plain", "@KEY", "@UNKNOWN", "@EMPTY"]
    with start(sys.executable, "-c", SHOW, *words) as process:
        output, errors = process.communicate(timeout=60)
    shown, got = words, ["--plain", "let=me in", "@UNKNOWN", ""]
    assert (output, errors) == (f"{shown} {got} {process.pid}\n", "")


@pytest.mark.parametrize("word", ["@KEY", "plain"])
def test_a_missing_program_is_an_error(word: str):
    with start("/nonexistent", word) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "No such file" in errors
