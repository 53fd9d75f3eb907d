"""Everything here needs an NVIDIA GPU and the packages of the gpu engine; it says so where they lack."""

from __future__ import annotations

import pytest

from dmls_core.models import CATALOGUE
from dmls_core.training.request import missing_for_gpu


@pytest.fixture(autouse=True, scope="session")
def gpu() -> None:
    """Skip with the reason why the gpu engine cannot run here."""
    for name in ("random-forest-classifier", "xgboost-classifier"):
        if reason := missing_for_gpu(CATALOGUE[name]):
            pytest.skip(f"the gpu engine cannot run here: {reason}")
