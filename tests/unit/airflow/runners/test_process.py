"""The runner ``process``."""

from __future__ import annotations

from dmls_core.testing.runners import RunnerSuite


class TestProcessRunner(RunnerSuite):
    name = "process"
