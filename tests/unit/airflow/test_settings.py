"""What the kwargs of the bundle entry may hold."""

from __future__ import annotations

import pytest

from dmls_core.airflow.settings import split_kwargs
from dmls_core.errors import PlatformError


def test_settings_are_split_from_the_arguments_of_airflow() -> None:
    settings, others = split_kwargs({"root": "s3://bucket", "shards": 8, "refresh_interval": 3})

    assert (settings.root, settings.shards) == ("s3://bucket", 8)
    assert others == {"refresh_interval": 3}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"keep_runs_days": 30}, r"kwargs.keep_runs_days: this setting was removed; .*airflow db clean"),
        ({"refresh_intervall": 3}, r"there is no such setting; did you mean 'refresh_interval'\?"),
        ({"keep_version": 2}, r"kwargs.keep_version: there is no such setting; did you mean 'keep_versions'"),
        ({"xyz": 2}, r"there is no such setting; docs/reference/settings.md lists"),
        ({"xyz": 2, "shards": 0}, r"kwargs.xyz: .*; kwargs.shards: .* \(found 0\)"),
    ],
)
def test_a_key_that_is_no_setting_is_refused_with_what_to_do(kwargs: dict[str, int], message: str) -> None:
    with pytest.raises(PlatformError, match=message):
        split_kwargs({"root": "s3://bucket"} | kwargs)
