"""What every runner must do whose nodes are trainers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dmls_core.errors import RunnerError
from dmls_core.testing import runners
from dmls_core.testing.trainer_program import Watch, wait_for

SPEC = """model = "xgboost-classifier"
n_trials = 3
columns.target = "y"
resources.nodes = 2
"""


class NodesJourney:
    """Tests of a trainer with two nodes; ``members`` counts the trainers that run, of all kinds."""

    def members(self, settings) -> int:
        raise NotImplementedError

    @pytest.fixture
    def with_nodes(self, monkeypatch) -> None:
        monkeypatch.setattr(runners, "SPEC", SPEC)

    @pytest.fixture
    def led(self, with_nodes: None, launch, platform, runner) -> Iterator[Watch]:  # noqa: ARG002
        """Start a trainer that hangs, and its nodes."""
        watch = Watch(launch("hang").start())
        wait_for(lambda: self.members(platform) == 3)
        yield watch
        runner.stop(watch.trigger.key)
        watch.join(60)

    def test_a_new_try_ends_the_nodes_of_the_earlier_one(self, led, launch, runner, platform):
        again = launch("hang", try_number=2).start()
        assert runner.exit_of(again.key) is None
        assert runner.exit_of(f"{again.key}-node2") is None
        assert not runner.exists(f"{led.trigger.key}-node1")
        assert self.members(platform) == 3
        runner.stop(again.key)
        wait_for(lambda: self.members(platform) == 0)

    @pytest.mark.usefixtures("with_nodes")
    def test_nodes_end_with_a_trainer_that_crashes(self, launch, platform):
        with pytest.raises(RunnerError, match="exited with code 3"):
            launch("crash").run()
        assert self.members(platform) == 0

    @pytest.mark.usefixtures("led")
    def test_nodes_of_a_task_that_is_gone_are_reaped(self, runner, platform, monkeypatch):
        monkeypatch.setattr(runner, "min_age_seconds", -60)
        assert runner.reap(lambda *_: True) == []
        assert len(runner.reap(lambda *_: False)) == 3
        wait_for(lambda: self.members(platform) == 0)
