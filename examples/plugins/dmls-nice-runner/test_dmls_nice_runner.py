from dmls_core.testing import RunnerSuite


class TestNiceRunner(RunnerSuite):
    name = "nice"
