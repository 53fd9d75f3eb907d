"""XGBoost's gradient-boosted trees, by the names of its scikit-learn interface."""

from __future__ import annotations

from dmls_core.models.metrics_catalogue import DEFAULT_METRICS, metrics_of
from dmls_core.spec.definitions import HyperparameterDefinition, ModelDefinition, Task


def _share(name: str, description: str) -> HyperparameterDefinition:
    return HyperparameterDefinition(name, "float", 1.0, description, low=0.0, high=1.0, low_open=True)


_SHARED = (
    HyperparameterDefinition("n_estimators", "int", 100, "Boosting rounds.", low=1, high=100_000),
    HyperparameterDefinition(
        "learning_rate", "float", 0.3, "How much each tree counts.", low=0.0, high=1.0, low_open=True
    ),
    HyperparameterDefinition(
        "max_depth",
        "int",
        6,
        'Deepest level of a tree; "none" sets no limit.',
        low=1,
        high=64,
        choices=("none",),
        engine_values={"cpu": {"none": 0}, "gpu": {"none": 0}},
    ),
    HyperparameterDefinition(
        "max_leaves",
        "int",
        "none",
        'Most leaves of a tree; "none" sets no limit.',
        low=2,
        high=1_000_000,
        choices=("none",),
        engine_values={"cpu": {"none": 0}, "gpu": {"none": 0}},
    ),
    HyperparameterDefinition(
        "grow_policy",
        "choice",
        "depthwise",
        "Where a tree grows next: level by level, or where the loss falls most.",
        choices=("depthwise", "lossguide"),
    ),
    HyperparameterDefinition(
        "min_child_weight", "float", 1.0, "Sum of weights that each child needs.", low=0.0, high=1e9
    ),
    HyperparameterDefinition("gamma", "float", 0.0, "What a split must gain.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "max_delta_step", "float", 0.0, "Largest step of a leaf; 0 sets no limit.", low=0.0, high=1e9
    ),
    _share("subsample", "Share of the rows that each tree is grown on."),
    _share("colsample_bytree", "Share of the columns that each tree chooses from."),
    _share("colsample_bylevel", "Share of the columns that each level chooses from."),
    _share("colsample_bynode", "Share of the columns that each split chooses from."),
    HyperparameterDefinition("reg_alpha", "float", 0.0, "L1 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition("reg_lambda", "float", 1.0, "L2 penalty on leaves.", low=0.0, high=1e9),
    HyperparameterDefinition(
        "max_bin", "int", 256, "Bins that each column is sorted into.", low=2, high=65_536
    ),
)

_CLASSIFIER = (
    HyperparameterDefinition(
        "scale_pos_weight",
        "float",
        1.0,
        "Weight of the second of two classes.",
        low=0.0,
        high=1e9,
        low_open=True,
    ),
)


def _boosted(task: Task, description: str) -> ModelDefinition:
    own = (*_SHARED, *_CLASSIFIER) if task == "classification" else _SHARED
    return ModelDefinition(
        name="xgboost-classifier" if task == "classification" else "xgboost-regressor",
        task=task,
        family="xgboost",
        description=description,
        hyperparameters={definition.name: definition for definition in own},
        engines=("cpu", "gpu"),
        metrics=metrics_of(task),
        default_metric=DEFAULT_METRICS[task],
        missing_values=True,
        search={
            "n_estimators": {"min": 50, "max": 500},
            "learning_rate": {"min": 0.01, "max": 0.3, "log": True},
            "max_depth": {"min": 3, "max": 10},
            "min_child_weight": {"min": 0.5, "max": 20.0, "log": True},
            "subsample": {"min": 0.5, "max": 1.0},
            "colsample_bytree": {"min": 0.5, "max": 1.0},
            "reg_lambda": {"min": 0.01, "max": 10.0, "log": True},
        },
    )


MODELS = (
    _boosted("classification", "XGBoost's boosted trees for classes."),
    _boosted("regression", "XGBoost's boosted trees for numbers."),
)
