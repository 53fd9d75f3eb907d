"""What the engines of XGBoost, LightGBM and CatBoost share: their models, and the steps of a fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dmls_core.models.cluster import ShardedMatrix
from dmls_core.models.engines.base import (
    Array,
    Binned,
    BoostingEngine,
    by_name,
    refusal,
    useful_threads,
)
from dmls_core.models.engines.ensemble import FittedBooster
from dmls_core.models.engines.learning_rate import AUTO, learning_rate
from dmls_core.models.engines.sharded import FitArguments, ShardedBins, fit_sharded
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Scalar, Task

if TYPE_CHECKING:
    from dmls_core.models.engines.all_reduce import Library
    from dmls_core.models.engines.base import FloatArray

CLASS_WEIGHT = HyperparameterDefinition(
    "class_weight", "choice", "none", "Weights of the classes.", choices=("none", "balanced")
)


def share(name: str, description: str, default: float = 1.0) -> HyperparameterDefinition:
    """Return the definition of a share of rows or columns."""
    return HyperparameterDefinition(name, "float", default, description, low=0.0, high=1.0, low_open=True)


def boosted_models(
    family: str,
    trees: str,
    hyperparameters: Sequence[HyperparameterDefinition],
    of_classes: HyperparameterDefinition,
    *,
    rounds: int,
    rate: float,
    search: Mapping[str, Mapping[str, Any]],
    portfolio: tuple[Mapping[str, Scalar], ...],
) -> tuple[ModelDefinition, ModelDefinition]:
    """Return a library's classifier and regressor.

    Args:
        family: the library's name in the models' names.
        trees: what the library calls its trees, for the models' descriptions.
        hyperparameters: those of both, beside ``n_estimators`` and ``learning_rate``.
        of_classes: one of the classifier only.
        rounds: the library's default of ``n_estimators``.
        rate: that of ``learning_rate``.
        search: the default search space, beside these two.
        portfolio: see ``ModelDefinition``.
    """
    shared = (
        HyperparameterDefinition("n_estimators", "int", rounds, "Boosting rounds.", low=1, high=100_000),
        learning_rate(rate),
        *hyperparameters,
    )

    def _model(task: Task, name: str, target: str, *more: HyperparameterDefinition) -> ModelDefinition:
        return ModelDefinition(
            name=f"{family}-{name}",
            task=task,
            family=family,
            description=f"{trees} for {target}.",
            hyperparameters=by_name(*shared, *more),
            missing_values=True,
            search={
                "n_estimators": {"min": 50, "max": 500},
                "learning_rate": {"value": AUTO},
                **search,
            },
            portfolio=portfolio,
        )

    return (
        _model("classification", "classifier", "classes", of_classes),
        _model("regression", "regressor", "numbers"),
    )


@dataclass(frozen=True, slots=True)
class Fit:
    """What a fit depends on beside its rows: ``settings`` are the output of ``Engine.effective``."""

    model: ModelDefinition
    settings: Mapping[str, Scalar]
    n_classes: int
    seed: int
    threads: int


class Booster(BoostingEngine):
    """An engine of a boosting library.

    A subclass says how its library bins rows, trains and grows; rows on several nodes, weights of classes and
    the library's errors are handled here.

    Attributes:
        library: the library's name for a fit on several nodes, if the engine is ``distributed``.
    """

    native_categories: ClassVar[bool] = True
    sample_weights: ClassVar[bool] = True
    library: ClassVar[Library]

    @classmethod
    @abstractmethod
    def error_class(cls) -> type[Exception]:
        """Import the library; return the exception that it raises."""

    @abstractmethod
    def train(self, fit: Fit, features: Array, target: Array, weights: Array | None) -> Any:  # noqa: ANN401
        """Return the library's booster, fitted on rows in this process's memory or in a file."""

    @abstractmethod
    def bin_rows(
        self, fit: Fit, features: Array, target: Array, weights: Array | None, scored: Array
    ) -> Binned:
        """Bin rows for many boosters; see ``BoostingEngine.bin``."""

    @abstractmethod
    def wrap(self, fit: Fit, booster: Any, features: Array) -> FittedBooster:  # noqa: ANN401
        """Return the library's booster, fitted on ``features``, as a ``Fitted``."""

    def fit(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: Array,
        *,
        n_classes: int,
        seed: int,
        threads: int,
        weights: Array | None = None,
    ) -> FittedBooster:
        """Fit one booster; see ``Engine.fit``."""
        settings = self.effective(model, params)
        weights = _row_weights(settings, target, weights)
        if isinstance(features, ShardedMatrix):
            arguments = self._on_nodes(model, params, n_classes, seed)
            booster = fit_sharded((features, target, weights), arguments)
            return self.wrap(Fit(model, settings, n_classes, seed, threads), booster, features)
        fit = Fit(model, settings, n_classes, seed, useful_threads(features, threads))
        with self.refusing(model):
            booster = self.train(fit, features, target, weights)
        return self.wrap(fit, booster, features)

    def binning(self, model: ModelDefinition, params: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        """Return the number of bins and the weights of the classes; see ``BoostingEngine.binning``."""
        settings = self.effective(model, params)
        return settings["max_bin"], settings.get("class_weight", "none")

    def bin(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: Array,
        scored: Array,
        *,
        n_classes: int,
        seed: int,
        threads: int,
        weights: Array | None = None,
    ) -> Binned:
        """Bin rows for many boosters; see ``BoostingEngine.bin``."""
        settings = self.effective(model, params)
        weights = _row_weights(settings, target, weights)
        if isinstance(features, ShardedMatrix):
            return ShardedBins(
                (features, target, weights), scored, self._on_nodes(model, params, n_classes, seed)
            )
        fit = Fit(model, settings, n_classes, seed, useful_threads(features, threads))
        with self.refusing(model):
            return self.bin_rows(fit, features, target, weights, scored)

    @classmethod
    @contextmanager
    def refusing(cls, model: ModelDefinition) -> Iterator[None]:
        """Raise what the library raises in the block as ``refusal`` says."""
        library_error = cls.error_class()
        try:
            yield
        except (ValueError, library_error) as error:
            raise refusal(model, error) from error

    def _on_nodes(
        self, model: ModelDefinition, params: Mapping[str, Scalar], n_classes: int, seed: int
    ) -> FitArguments:
        """Return a fit's arguments for nodes; the weights of their rows contain those of the classes."""
        unweighted = {name: value for name, value in params.items() if name != "class_weight"}
        return FitArguments(self.library, model.name, unweighted, self.categories, n_classes, seed)


def class_weights(target: Array) -> FloatArray:
    """Return row weights, (n_rows,), that give every class in ``target`` the same total."""
    import numpy as np

    _, codes, counts = np.unique(target, return_inverse=True, return_counts=True)
    weights: FloatArray = (len(target) / (len(counts) * counts))[codes]
    return weights


def _row_weights(settings: Mapping[str, Scalar], target: Array, weights: Array | None) -> Array | None:
    """Return the weights of rows, times those of their classes if these are balanced."""
    if settings.get("class_weight") != "balanced":
        return weights
    return class_weights(target) if weights is None else weights * class_weights(target)
