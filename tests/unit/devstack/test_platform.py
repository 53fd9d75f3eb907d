from __future__ import annotations

from pathlib import Path

import pytest

from dmls_core.devstack.platform import Platform
from dmls_core.errors import PlatformError


def test_a_platform_that_never_was_is_down_and_leaves_no_trace(tmp_path: Path):
    platform = Platform(tmp_path / ".dmls")
    assert not platform.status().up
    assert platform.status().settings is None
    assert platform.down() == []
    assert not platform.folder.exists()


def test_a_port_for_nothing_is_an_error_and_starts_nothing(tmp_path: Path):
    platform = Platform(tmp_path / ".dmls", ports={"airflo": 8080})
    with pytest.raises(PlatformError, match="no service has a port called airflo"):
        platform.up()
    assert not (platform.folder / "supervisord.conf").exists()
    assert not platform.status().up
