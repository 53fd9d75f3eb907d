"""Runs validate in this process, which imports Great Expectations once: a child of each would for seconds."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from dmls_core import sandbox
from dmls_core.data import validation


@pytest.fixture(autouse=True)
def validation_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(function: Callable[..., None], *args: object, **_: object) -> SimpleNamespace:
        function(*args)
        return SimpleNamespace(finished=True, result=lambda _: None, kill=lambda: None)

    monkeypatch.setattr(sandbox, "start", start)
    monkeypatch.setattr(validation, "_NICE", 0)
