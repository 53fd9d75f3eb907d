"""Treelite passes the suite of every serving format."""

from __future__ import annotations

from dmls_core.models import CATALOGUE
from dmls_core.models.engines.forests import SklearnForestEngine
from dmls_core.serving.formats.treelite.serving_format import TreeliteFormat
from dmls_core.testing import ServingFormatSuite


class TestTreelite(ServingFormatSuite):
    format_class = TreeliteFormat

    def fit(self, features, target, n_classes):
        model = CATALOGUE[f"random-forest-{'classifier' if n_classes else 'regressor'}"]
        options = {"n_classes": n_classes, "seed": 0, "threads": 1}
        return SklearnForestEngine().fit(model, {"n_estimators": 5}, features, target, **options)
