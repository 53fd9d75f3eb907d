"""Random forests and extra trees: scikit-learn's hyperparameters, and what cuML makes of them."""

from __future__ import annotations

from typing import Literal

from dmls_core.models.metrics_catalogue import DEFAULT_METRICS, metrics_of
from dmls_core.spec.definitions import (
    HyperparameterDefinition,
    ModelDefinition,
    Requirement,
    Task,
)

_NO_PRUNING = "cuML does not prune trees after they have grown"

_SHARED = (
    HyperparameterDefinition("n_estimators", "int", 100, "Number of trees.", low=1, high=10_000),
    HyperparameterDefinition(
        "max_depth",
        "int",
        "none",
        'Deepest level of a tree; "none" grows until the leaves are pure.',
        low=1,
        high=1_000,
        choices=("none",),
    ),
    HyperparameterDefinition(
        "min_samples_split",
        "count",
        2,
        "Rows (or share of the rows) that a node needs to be split.",
        low=2,
        high=10_000_000,
    ),
    HyperparameterDefinition(
        "min_samples_leaf",
        "count",
        1,
        "Rows (or share of the rows) that each leaf needs.",
        low=1,
        high=10_000_000,
        share_high=0.5,
    ),
    HyperparameterDefinition(
        "min_weight_fraction_leaf",
        "float",
        0.0,
        "Share of the total weight that each leaf needs.",
        low=0.0,
        high=0.5,
        unsupported={"gpu": "cuML's leaves know no least weight"},
    ),
    HyperparameterDefinition(
        "max_leaf_nodes",
        "int",
        "none",
        'Most leaves of a tree; "none" sets no limit.',
        low=2,
        high=10_000_000,
        choices=("none",),
        engine_names={"gpu": "max_leaves"},
        engine_values={"gpu": {"none": -1}},
    ),
    HyperparameterDefinition(
        "min_impurity_decrease",
        "float",
        0.0,
        "What a split must gain to be made.",
        low=0.0,
        high=1e9,
    ),
    HyperparameterDefinition(
        "max_samples",
        "count",
        "none",
        'Rows (or share of the rows) that each tree is grown on; "none" draws as many as there are.',
        low=1,
        high=1_000_000_000,
        choices=("none",),
        engine_values={"gpu": {"none": 1.0}},
        shares_only=frozenset({"gpu"}),
    ),
    HyperparameterDefinition(
        "ccp_alpha",
        "float",
        0.0,
        "Strength of minimal cost-complexity pruning.",
        low=0.0,
        high=1e9,
        unsupported={"gpu": _NO_PRUNING},
    ),
)

_MAX_SAMPLES_NEEDS_BOOTSTRAP = Requirement("max_samples", needs="bootstrap", value=True)


def _max_features(default: str | float) -> HyperparameterDefinition:
    return HyperparameterDefinition(
        "max_features",
        "count",
        default,
        "Columns (or share of them) that a split may choose from.",
        low=1,
        high=1_000_000,
        choices=("sqrt", "log2", "none"),
        engine_values={"gpu": {"none": 1.0}},
    )


def _bootstrap(default: bool) -> HyperparameterDefinition:
    return HyperparameterDefinition(
        "bootstrap", "bool", default, "Whether each tree is grown on rows drawn with replacement."
    )


_CLASSIFIER = (
    HyperparameterDefinition(
        "criterion",
        "choice",
        "gini",
        "What a split is judged by; log_loss is another name of entropy.",
        choices=("gini", "entropy", "log_loss"),
        engine_names={"gpu": "split_criterion"},
        aliases={"gpu": {"log_loss": "entropy"}},
    ),
    HyperparameterDefinition(
        "class_weight",
        "choice",
        "none",
        "How rare classes are made up for.",
        choices=("none", "balanced", "balanced_subsample"),
        unsupported_values={"gpu": frozenset({"balanced_subsample"})},
    ),
    _max_features("sqrt"),
)

_REGRESSOR = (
    HyperparameterDefinition(
        "criterion",
        "choice",
        "squared_error",
        "What a split is judged by.",
        choices=("squared_error", "absolute_error", "poisson"),
        engine_names={"gpu": "split_criterion"},
        engine_values={"gpu": {"squared_error": "mse"}},
        unsupported_values={"gpu": frozenset({"absolute_error"})},
    ),
    _max_features(1.0),
)


def _forest(family: Literal["random-forest", "extra-trees"], task: Task, description: str) -> ModelDefinition:
    classifier = task == "classification"
    extra = family == "extra-trees"
    own = (*(_CLASSIFIER if classifier else _REGRESSOR), _bootstrap(default=not extra))
    return ModelDefinition(
        name=f"{family}-{'classifier' if classifier else 'regressor'}",
        task=task,
        family=family,
        description=description,
        hyperparameters={definition.name: definition for definition in (*_SHARED, *own)},
        engines=("cpu",) if extra else ("cpu", "gpu"),
        metrics=metrics_of(task),
        default_metric=DEFAULT_METRICS[task],
        missing_values=False,
        search={
            "n_estimators": {"min": 50, "max": 500},
            "max_depth": {"min": 4, "max": 24},
            "max_features": {"values": ["sqrt", 0.5, 1.0]},
            "min_samples_leaf": {"min": 1, "max": 10},
            **({"criterion": {"values": ["gini", "entropy"]}} if classifier else {}),
        },
        requirements=(_MAX_SAMPLES_NEEDS_BOOTSTRAP,),
    )


MODELS = (
    _forest("random-forest", "classification", "Trees grown on drawn rows that vote for a class."),
    _forest("random-forest", "regression", "The mean of trees grown on drawn rows."),
    _forest("extra-trees", "classification", "Trees with random thresholds that vote for a class."),
    _forest("extra-trees", "regression", "The mean of trees with random thresholds."),
)
