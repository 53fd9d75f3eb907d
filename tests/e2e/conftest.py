"""Jobs that tests only wait for are dropped before the first test: they train while other tests wait."""

from __future__ import annotations

import pytest

from tests.conftest import GROUP, group_of
from tests.services.platform_client import PlatformClient


@pytest.fixture(scope="session")
def platform(platform: PlatformClient, request: pytest.FixtureRequest) -> PlatformClient:
    """The platform, with what the modules of its tests have in ``AHEAD`` dropped.

    ``AHEAD`` maps a job to what is dropped: ``(team, job): (spec, data)``.
    """
    group = request.session.stash[GROUP]
    modules = dict.fromkeys(
        item.module
        for item in request.session.items
        if isinstance(item, pytest.Function) and group_of(item) == group
    )
    for module in modules:
        for (team, job), (spec, table) in getattr(module, "AHEAD", {}).items():
            platform.drop(team, job, spec, table)
    return platform
