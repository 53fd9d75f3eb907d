"""The metrics a spec can name: which way is better, and scikit-learn's own names for them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dmls_core.spec.definitions import MetricDefinition, Task

_METRICS = (
    MetricDefinition("accuracy", "classification", "maximize", "Share of rows predicted right."),
    MetricDefinition(
        "balanced_accuracy", "classification", "maximize", "Mean over the classes of the share found."
    ),
    MetricDefinition("f1_macro", "classification", "maximize", "F1 score, the mean over the classes."),
    MetricDefinition(
        "f1_weighted", "classification", "maximize", "F1 score, the mean weighted by the classes' sizes."
    ),
    MetricDefinition(
        "precision_macro", "classification", "maximize", "Precision, the mean over the classes."
    ),
    MetricDefinition("recall_macro", "classification", "maximize", "Recall, the mean over the classes."),
    MetricDefinition(
        "roc_auc",
        "classification",
        "maximize",
        "Area under the ROC curve; with several classes each against the rest, the mean over them.",
        ("roc_auc_ovr",),
    ),
    MetricDefinition(
        "average_precision",
        "classification",
        "maximize",
        "Area under the precision-recall curve; the mean over the classes if there are several.",
    ),
    MetricDefinition(
        "log_loss",
        "classification",
        "minimize",
        "Cross-entropy of the predicted probabilities.",
        ("neg_log_loss",),
    ),
    MetricDefinition(
        "matthews_corrcoef", "classification", "maximize", "Matthews' correlation of predicted and true."
    ),
    MetricDefinition("r2", "regression", "maximize", "Share of the variance explained, of 1 at best."),
    MetricDefinition(
        "rmse",
        "regression",
        "minimize",
        "Root of the mean squared error.",
        ("neg_root_mean_squared_error", "root_mean_squared_error"),
    ),
    MetricDefinition(
        "mae",
        "regression",
        "minimize",
        "Mean absolute error.",
        ("neg_mean_absolute_error", "mean_absolute_error"),
    ),
    MetricDefinition(
        "median_ae",
        "regression",
        "minimize",
        "Median absolute error.",
        ("neg_median_absolute_error", "median_absolute_error"),
    ),
    MetricDefinition(
        "mape",
        "regression",
        "minimize",
        "Mean absolute error as a share of the true value.",
        ("neg_mean_absolute_percentage_error", "mean_absolute_percentage_error"),
    ),
    MetricDefinition("max_error", "regression", "minimize", "Largest absolute error.", ("neg_max_error",)),
    MetricDefinition(
        "explained_variance", "regression", "maximize", "Like r2, but blind to a constant error."
    ),
)

METRICS: Mapping[str, MetricDefinition] = MappingProxyType({metric.name: metric for metric in _METRICS})
"""Every metric by name. Scores are always the metric itself: ``rmse`` is positive, lower is better."""

DEFAULT_METRICS: Mapping[Task, str] = MappingProxyType({"classification": "accuracy", "regression": "r2"})
"""What is optimised where a spec names no metric."""


def metrics_of(task: Task) -> dict[str, MetricDefinition]:
    """Return the metrics of one task, by name."""
    return {name: metric for name, metric in METRICS.items() if metric.task == task}
