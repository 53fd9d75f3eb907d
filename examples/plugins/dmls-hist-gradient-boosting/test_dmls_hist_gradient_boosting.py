from dmls_hist_gradient_boosting import HistGradientBoostingEngine

from dmls_core.testing import EngineSuite


class TestHistGradientBoosting(EngineSuite):
    engine_class = HistGradientBoostingEngine
    fast = {"n_estimators": 5, "min_samples_leaf": 5}
    samples = {"max_features": 0.5}
