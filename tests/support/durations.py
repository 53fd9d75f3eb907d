"""How long tests take: the longest group starts first; ``--record-durations`` updates ``.test_durations``."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / ".test_durations"
COLLECTED = pytest.StashKey[frozenset[str]]()
"""In the configuration's stash, where the whole suite is collected: the names of all tests."""


def plain(nodeid: str) -> str:
    """Return a node id without the group that pytest-xdist appends."""
    return nodeid.rpartition("@")[0] if nodeid.rfind("@") > nodeid.rfind("]") else nodeid


def read_durations() -> dict[str, float]:
    """Return the recorded seconds of each test with its fixtures."""
    durations: dict[str, float] = json.loads(FILE.read_text())
    return durations


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="update .test_durations with the tests that run, and drop tests that no longer exist",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and not hasattr(config, "workeroutput"):
        config.pluginmanager.register(Recorder(config))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Note the names of all tests; of those that ``-m`` and ``-k`` leave, put the longest group first.

    A worker of pytest-xdist takes the next group when it has done one, so that short groups fill the gaps.
    Within a group, files keep their order.
    """
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.stash[COLLECTED] = frozenset(plain(item.nodeid) for item in items)
        if hasattr(config, "workeroutput"):
            config.workeroutput["collected"] = sorted(config.stash[COLLECTED])
    yield
    seconds = read_durations()
    groups = {item: next(item.iter_markers("xdist_group")).args[0] for item in items}
    weights: dict[str, float] = {}
    for item, group in groups.items():
        weights[group] = weights.get(group, 0.0) + seconds.get(plain(item.nodeid), 0.1)
    items.sort(key=lambda item: (-weights[groups[item]], groups[item]))


class Recorder:
    """Adds up the phases of each test that passes or is skipped; a test that runs again counts once."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._collected: frozenset[str] = frozenset()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = plain(report.nodeid)
        if report.when == "setup":
            self._seconds[name] = 0.0
            self._failed.discard(name)
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.outcome not in ("passed", "skipped"):
            self._failed.add(name)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the names of all tests from a worker of pytest-xdist: its parent collects none."""
        output = getattr(node, "workeroutput", {})
        self._collected = self._collected or frozenset(output.get("collected", ()))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        measured = {name: round(s, 2) for name, s in self._seconds.items() if name not in self._failed}
        durations = read_durations() | measured
        if collected := self._collected or self._config.stash.get(COLLECTED, None):
            durations = {name: seconds for name, seconds in durations.items() if name in collected}
        FILE.write_text(json.dumps(durations, indent=0, sort_keys=True) + "\n")
