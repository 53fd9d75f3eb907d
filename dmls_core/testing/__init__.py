"""Test suites that third-party extensions must pass. They need pytest."""

from __future__ import annotations

from importlib import import_module

import pytest

_MODULES = {
    "EngineSuite": "engines",
    "FormatSuite": "formats",
    "NotifierSuite": "notifiers",
    "RunnerSuite": "runners",
    "SamplerSuite": "samplers",
    "ServingFormatSuite": "serving_formats",
    "StoreSuite": "stores",
}

for _module in _MODULES.values():
    pytest.register_assert_rewrite(f"{__name__}.{_module}")


def __getattr__(name: str) -> object:
    """Import a suite when it is first used: each needs other packages."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
