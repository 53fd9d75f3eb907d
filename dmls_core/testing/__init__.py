"""Test suites that third-party engines, runners, stores and notifiers must pass. They need pytest."""

from __future__ import annotations

import pytest

for _suite in ("engines", "notifiers", "runners", "stores"):
    pytest.register_assert_rewrite(f"{__name__}.{_suite}")
