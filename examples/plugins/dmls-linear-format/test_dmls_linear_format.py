import numpy as np
from dmls_linear_format import LinearFormat

from dmls_core.testing import ServingFormatSuite


class Fitted:
    """Weights as an engine would have fitted them."""

    def __init__(self, n_features, n_outputs):
        random = np.random.default_rng(0)
        self.coefficients = random.normal(size=(n_features, n_outputs))
        self.intercepts = random.normal(size=n_outputs)

    def weights(self):
        return self.coefficients, self.intercepts

    def predict(self, features):
        scores = np.nan_to_num(features) @ self.coefficients + self.intercepts
        if scores.shape[1] == 1:
            return scores[:, 0]
        powers = np.exp(scores)
        return powers / powers.sum(axis=1, keepdims=True)


class TestLinearFormat(ServingFormatSuite):
    format_class = LinearFormat

    def fit(self, features, target, n_classes):
        return Fitted(features.shape[1], n_classes or 1)
