from __future__ import annotations

import pytest

from dmls_core.serving.formats.treelite.fil_backend import DESCRIPTIONS
from dmls_core.serving.triton.backends import backend_of
from tests.support.model_folder import toy_model_folder


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"runtime": "model.py"}, "stand-in"), ({"runtime": ""}, "genuine"), ({}, "genuine")],
)
def test_a_backend_that_is_a_python_file_is_the_stand_in(config, expected):
    assert backend_of(config) == expected
    assert expected in DESCRIPTIONS[expected]


def test_a_deployment_records_which_backend_answered(deployment, tmp_path):
    assert deployment.deploy(toy_model_folder(tmp_path / "a")).proof.backend == "stand-in"
