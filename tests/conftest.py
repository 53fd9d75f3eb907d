"""Fixtures that every kind of test may use, tiers as markers, and the groups of tests that share a worker."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no defect: what must be quick is measured in CPU time where it is tested.
settings.register_profile(
    "dmls", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", settings.get_profile("dmls"), max_examples=300)
settings.load_profile("dmls")

# A plug-in comes before those that import it, or pytest cannot rewrite its asserts.
pytest_plugins = [
    "tests.support.collection",
    "tests.support.durations",
    "tests.services.seaweed",
    "tests.services.browser",
    "tests.services.docker_engine",
    "tests.services.celery_platform",
    "tests.services.demo_platform",
    "tests.services.mlflow_server",
    "tests.services.platform_home",
    "tests.services.postgres_server",
    "tests.services.prometheus_server",
    "tests.services.triton_server",
]

TESTS = Path(__file__).parent
TIERS = {"unit": "unit", "integration": "service", "e2e": "e2e", "faults": "faults", "gpu": "gpu"}
"""Folder below ``tests/`` -> the marker of its tests."""

SHARED = {
    "docker_engine": "docker",
    "trainer_image": "docker",
    "demo": "platform",
    "home": "home",
    "mlflow_uri": "mlflow",
    "triton": "triton",
    "postgres": "postgres",
}
"""Session fixture -> the group whose tests run in one worker, so that the service starts once."""

ENVIRONMENT = pytest.StashKey[dict[str, str]]()
GROUP = pytest.StashKey[str]()
"""In the session's stash: the group of the test that runs."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the group of the test that runs."""
    item.session.stash[GROUP] = group_of(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Give each file the environment as it was before the first: settings and Dask leave variables."""
    environment = item.config.stash.setdefault(ENVIRONMENT, dict(os.environ))
    result = yield
    if nextitem is None or nextitem.path != item.path:
        os.environ.clear()
        os.environ.update(environment)
    return result


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by its tier, and by the group of tests that one worker runs."""
    path = item.path.relative_to(TESTS)
    item.add_marker(TIERS[path.parts[0]])
    fixtures = getattr(item, "fixturenames", ())
    group = next((SHARED[name] for name in SHARED if name in fixtures), path.as_posix())
    if group == "docker":
        item.add_marker("docker")
    item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a nightly test that does not say why `make test` leaves it out."""
    for item in items:
        for mark in item.iter_markers("nightly"):
            if not (mark.args and isinstance(mark.args[0], str)):
                raise pytest.UsageError(f"{item.nodeid}: write the reason into pytest.mark.nightly(reason)")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the services of a group after its last test: idle, a platform takes a share of a core."""
    if nextitem is None or group_of(nextitem) == group_of(item) or not isinstance(item, pytest.Function):
        return
    for name in SHARED:
        if name in item.fixturenames:
            for definition in item.session._fixturemanager.getfixturedefs(name, item) or ():
                definition.finish(item._request)


def group_of(item: pytest.Item) -> str:
    """Return the group of tests that one worker runs."""
    group: str = next(item.iter_markers("xdist_group")).args[0]
    return group


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Print each failure when it happens: a run that is stopped prints no summary."""
    if terminal := config.pluginmanager.get_plugin("terminalreporter"):
        config.pluginmanager.register(Failures(terminal))


class Failures:
    """What the process with the terminal prints of each failed test."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome in ("failed", "rerun"):
            self.terminal.ensure_newline()
            self.terminal.section(f"{report.nodeid} ({report.when})", sep="-")
            self.terminal.write_line(report.longreprtext)
