"""Jobs that tests only wait for are dropped before the first test: they train while other tests run."""

from __future__ import annotations

import pytest

from tests.conftest import GROUP, group_of
from tests.services.platform_client import PlatformClient

WHILE_JOBS_TRAIN = ("test_cli.py", "test_web_keyboard.py")
"""Files whose tests come first: they train nothing."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that train nothing first, and those last that train while the test waits."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if item.path.name in WHILE_JOBS_TRAIN:
        return 0
    return 1 if hasattr(getattr(item, "module", None), "drop_ahead") else 2


@pytest.fixture(scope="session")
def platform(platform: PlatformClient, request: pytest.FixtureRequest) -> PlatformClient:
    """The platform, on which the function ``drop_ahead`` of each module of its tests has dropped jobs."""
    group = request.session.stash[GROUP]
    modules = dict.fromkeys(
        item.module
        for item in request.session.items
        if isinstance(item, pytest.Function) and group_of(item) == group
    )
    for module in modules:
        if drop_ahead := getattr(module, "drop_ahead", None):
            drop_ahead(platform)
    return platform
