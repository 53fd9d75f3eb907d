"""Experimental classes warn once and otherwise behave as before."""

from __future__ import annotations

import warnings

import pytest

from dmls_core.stability import ExperimentalWarning, experimental


@experimental("it is new")
class Sample:
    def __init__(self, value: int) -> None:
        self.value = value


def test_the_first_instance_warns_with_the_reason_and_later_ones_do_not():
    with pytest.warns(ExperimentalWarning, match=r"Sample is experimental .*: it is new"):
        assert Sample(1).value == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Sample(value=2).value == 2
