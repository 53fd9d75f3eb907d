from __future__ import annotations

from pathlib import Path

import pytest

from dmls_core.devstack.context import Context, load_identity
from dmls_core.devstack.startup import PORTS


@pytest.fixture
def context(tmp_path: Path) -> Context:
    """A platform that is defined but runs nothing."""
    state = tmp_path / ".dmls"
    state.mkdir(mode=0o700)
    identity = load_identity(state / "identity.json")
    identity.runtime = str(tmp_path / "run")
    identity.ports = {name: 20000 + i for i, name in enumerate(n for names in PORTS.values() for n in names)}
    return Context(state, identity)
