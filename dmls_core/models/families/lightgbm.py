"""LightGBM's gradient-boosted trees, by the names of its scikit-learn interface."""

from __future__ import annotations

from dmls_core.models.metrics_catalogue import DEFAULT_METRICS, metrics_of
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Task

_SHARED = (
    HyperparameterDefinition("n_estimators", "int", 100, "Boosting rounds.", low=1, high=100_000),
    HyperparameterDefinition(
        "learning_rate", "float", 0.1, "How much each tree counts.", low=0.0, high=1.0, low_open=True
    ),
    HyperparameterDefinition("num_leaves", "int", 31, "Most leaves of a tree.", low=2, high=131_072),
    HyperparameterDefinition(
        "max_depth",
        "int",
        "none",
        'Deepest level of a tree; "none" sets no limit.',
        low=1,
        high=1_000,
        choices=("none",),
        engine_values={"cpu": {"none": -1}},
    ),
    HyperparameterDefinition(
        "min_child_samples", "int", 20, "Rows that each leaf needs.", low=0, high=10_000_000
    ),
    HyperparameterDefinition(
        "min_child_weight", "float", 1e-3, "Sum of weights that each leaf needs.", low=0.0, high=1e9
    ),
    HyperparameterDefinition("min_split_gain", "float", 0.0, "What a split must gain.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "subsample",
        "float",
        1.0,
        "Share of the rows that each bag holds.",
        low=0.0,
        high=1.0,
        low_open=True,
    ),
    HyperparameterDefinition(
        "subsample_freq",
        "int",
        # The library's own 0 would make subsample a hyperparameter that does nothing.
        1,
        "Rounds between two draws of a bag; 0 never draws, and makes subsample do nothing.",
        low=0,
        high=100_000,
    ),
    HyperparameterDefinition(
        "colsample_bytree",
        "float",
        1.0,
        "Share of the columns that each tree chooses from.",
        low=0.0,
        high=1.0,
        low_open=True,
    ),
    HyperparameterDefinition("reg_alpha", "float", 0.0, "L1 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition("reg_lambda", "float", 0.0, "L2 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "max_bin", "int", 255, "Bins that each column is sorted into.", low=2, high=65_535
    ),
    HyperparameterDefinition(
        "boosting_type",
        "choice",
        "gbdt",
        "Plain boosting, or dropping earlier trees at random.",
        choices=("gbdt", "dart"),
    ),
)

_CLASSIFIER = (
    HyperparameterDefinition(
        "class_weight",
        "choice",
        "none",
        "How rare classes are made up for.",
        choices=("none", "balanced"),
    ),
)


def _boosted(task: Task, description: str) -> ModelDefinition:
    own = (*_SHARED, *_CLASSIFIER) if task == "classification" else _SHARED
    return ModelDefinition(
        name="lightgbm-classifier" if task == "classification" else "lightgbm-regressor",
        task=task,
        family="lightgbm",
        description=description,
        hyperparameters={definition.name: definition for definition in own},
        engines=("cpu",),
        metrics=metrics_of(task),
        default_metric=DEFAULT_METRICS[task],
        missing_values=True,
        search={
            "n_estimators": {"min": 50, "max": 500},
            "learning_rate": {"min": 0.01, "max": 0.3, "log": True},
            "num_leaves": {"min": 8, "max": 128, "log": True},
            "min_child_samples": {"min": 5, "max": 100, "log": True},
            "subsample": {"min": 0.5, "max": 1.0},
            "colsample_bytree": {"min": 0.5, "max": 1.0},
            "reg_lambda": {"min": 0.01, "max": 10.0, "log": True},
        },
    )


MODELS = (
    _boosted("classification", "LightGBM's boosted trees for classes."),
    _boosted("regression", "LightGBM's boosted trees for numbers."),
)
