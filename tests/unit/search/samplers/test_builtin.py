"""The strategies that DMLS ships pass the suite of plug-ins."""

from __future__ import annotations

import pytest

from dmls_core.errors import PlatformError
from dmls_core.search.samplers.strategy import load_strategy
from dmls_core.testing import SamplerSuite


class TestTPE(SamplerSuite):
    name = "tpe"


class TestRandom(SamplerSuite):
    name = "random"


class TestGrid(SamplerSuite):
    name = "grid"


class TestCmaEs(SamplerSuite):
    name = "cma-es"


def test_a_strategy_that_is_not_installed_is_named_with_a_similar_one():
    with pytest.raises(PlatformError, match="no extension 'cmaes' .*did you mean 'cma-es'"):
        load_strategy("cmaes")
