"""How a runner gives trainers the cache of their team."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dmls_core.airflow.settings import AirflowSettings


class CacheJourney:
    """A test of a runner with the setting ``cache``, for a subclass of ``RunnerSuite``."""

    def cache_of(self, environment: dict[str, str], settings: AirflowSettings) -> str:
        """Return the folder or volume of the trainer's cache."""
        raise NotImplementedError

    @pytest.mark.parametrize("size", ["", "1g"])
    def test_a_trainer_has_the_cache_of_its_team(
        self, launch: Any, platform: AirflowSettings, store: Any, size: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        search = launch("succeed")
        monkeypatch.setattr(
            "dmls_core.airflow.runners.trainer_operator.airflow_settings",
            lambda: platform.model_copy(update={"cache": size}),
        )
        search.run()
        environment = json.loads(store.get(search.run_file("environment.json")))

        if not size:
            assert not any(name.startswith("DMLS_CACHE") for name in environment)
            return
        assert environment["DMLS_CACHE_BYTES"] == str(1 << 30)
        assert "dmls-cache-" in self.cache_of(environment, platform)
