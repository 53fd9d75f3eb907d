"""Every engine that DMLS ships passes the suite for plug-ins."""

from __future__ import annotations

from dmls_core.models.engines.catboost import CatBoostEngine
from dmls_core.models.engines.cuml import CumlForestEngine
from dmls_core.models.engines.forests import SklearnForestEngine
from dmls_core.models.engines.lightgbm import LightGBMEngine
from dmls_core.models.engines.xgboost import CudaXGBoostEngine, XGBoostEngine
from dmls_core.testing.engines import EngineDefinitionSuite, EngineSuite

FOREST_VALUES = {"max_samples": 0.5, "bootstrap": True, "max_features": 0.5, "n_estimators": 7}


class TestSklearnForests(EngineSuite):
    engine_class = SklearnForestEngine
    values = FOREST_VALUES
    refused = {"bootstrap": False, "max_samples": 0.5}


class TestCatBoost(EngineSuite):
    engine_class = CatBoostEngine
    strong = {"n_estimators": 40, "learning_rate": 0.2}
    samples = {"subsample": 0.5}


class TestXGBoost(EngineSuite):
    engine_class = XGBoostEngine
    samples = {"subsample": 0.5}


class TestLightGBM(EngineSuite):
    engine_class = LightGBMEngine
    samples = {"subsample": 0.5}


class TestCumlForestDefinitions(EngineDefinitionSuite):
    engine_class = CumlForestEngine
    values = FOREST_VALUES


class TestCudaXGBoostDefinitions(EngineDefinitionSuite):
    engine_class = CudaXGBoostEngine
