"""Ensembles: a weighted mean of fitted models, whose trees are one Treelite model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dmls_core.models.engines.base import Array, Fitted
from dmls_core.models.engines.double_precision import as_double
from dmls_core.spec.definitions import ModelDefinition, Scalar

if TYPE_CHECKING:
    import treelite

    from dmls_core.models.engines.base import FloatArray


class FittedTrees(Fitted):
    """A fitted model that an ensemble may contain: the sum, or the mean, of trees.

    The result is the margin: a value, the log odds, or a number for each class. A forest has no link
    function, so its margins are its predictions.
    """

    def margins(self, features: Array) -> FloatArray:
        """Predict before the link function; ``features`` are those of ``predict``.

        The result has the shape (n_rows,) or (n_rows, n_classes).
        """
        return self.predict(features)

    def from_margins(self, margins: FloatArray) -> FloatArray:
        """Return the predictions of rows with these ``margins``; see ``predict``."""
        return margins


class FittedBooster(FittedTrees):
    """A fitted model of boosted trees."""

    model: ModelDefinition

    @abstractmethod
    def answers(self, features: Array, *, margins: bool) -> FloatArray:
        """Predict as the library does: ``margins``, or what its link function makes of them."""

    def predict(self, features: Array) -> FloatArray:
        """Predict; see ``Fitted.predict``."""
        return boosted_predictions(self.model, self.answers(features, margins=False))

    def margins(self, features: Array) -> FloatArray:
        """Predict before the link function; see ``FittedTrees.margins``."""
        return self.answers(features, margins=True)

    def from_margins(self, margins: FloatArray) -> FloatArray:
        """Return the predictions of rows; see ``FittedTrees.from_margins``."""
        import numpy as np

        if self.model.task != "classification":
            return margins
        if margins.ndim == 1:
            return boosted_predictions(self.model, 1 / (1 + np.exp(-margins)))
        powers = np.exp(margins - margins.max(axis=1, keepdims=True))
        probabilities: FloatArray = powers / powers.sum(axis=1, keepdims=True)
        return probabilities


def boosted_predictions(model: ModelDefinition, predictions: FloatArray) -> FloatArray:
    """Return a booster's predictions as ``Fitted.predict`` does: of two classes, it predicts the second."""
    import numpy as np

    if model.task == "classification" and predictions.ndim == 1:
        return np.stack([1 - predictions, predictions], axis=1)
    return predictions


class FittedEnsemble(Fitted):
    """The mean of its members' margins, weighted by ``weights``, which sum to 1.

    ``parameters`` are those of the first member.
    """

    def __init__(self, members: Sequence[FittedTrees], weights: Sequence[float]) -> None:
        self.members = members
        self.weights = weights

    def predict(self, features: Array) -> FloatArray:
        """Predict; see ``Fitted.predict``."""
        import numpy as np

        margins = np.sum(
            [
                weight * member.margins(features).astype(np.float64)
                for member, weight in zip(self.members, self.weights, strict=True)
            ],
            axis=0,
        )
        return self.members[0].from_margins(margins)

    def importances(self) -> FloatArray:
        """Return the weighted mean of the members' importances."""
        import numpy as np

        each = np.array([member.importances() for member in self.members])
        importances: FloatArray = np.average(each, axis=0, weights=self.weights)
        return importances

    def parameters(self) -> dict[str, Scalar | None]:
        """Return every effective parameter of the first member."""
        return self.members[0].parameters()

    def to_treelite(self) -> treelite.Model:
        """Return the trees of all members as one Treelite model."""
        return _combine([member.to_treelite() for member in self.members], self.weights)


def _combine(models: Sequence[treelite.Model], weights: Sequence[float]) -> treelite.Model:
    """Return one Treelite model whose margin is the mean of the models', weighted by ``weights``.

    Leaves are scaled. A model that averages its trees counts all of them equally, so the leaves of a member
    are also scaled by its share of the trees. If one model is in double precision, the combined one is.
    """
    import numpy as np
    import treelite

    if len({model.input_type for model in models}) > 1:
        models = [as_double(model) for model in models]
    combined = treelite.Model.concatenate(list(models))
    header = combined.get_header_accessor()
    # Treelite keeps the base scores of the first model.
    scores = np.array([model.get_header_accessor().get_field("base_scores") for model in models], np.float64)
    header.set_field("base_scores", np.average(scores, axis=0, weights=weights))
    averages = bool(header.get_field("average_tree_output")[0])
    first = 0
    for model, weight in zip(models, weights, strict=True):
        scale = weight * combined.num_tree / model.num_tree if averages else weight
        for number in range(first, first + model.num_tree):
            _scale_leaves(combined, number, scale)
        first += model.num_tree
    return combined


def _scale_leaves(model: treelite.Model, number: int, scale: float) -> None:
    tree = model.get_tree_accessor(number)
    for name in ("leaf_value", "leaf_vector"):
        values = tree.get_field(name)
        if len(values):
            tree.set_field(name, (values * scale).astype(values.dtype))
