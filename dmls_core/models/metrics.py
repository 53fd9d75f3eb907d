"""The metrics that a spec can name, found by the entry point ``dmls.metrics``.

A metric is one object of the class ``Metric``; ``docs/extending/metrics.md`` shows how to add one.
scikit-learn is imported when a metric is computed, not when its name is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Optional

from dmls_core import extensions
from dmls_core.errors import DataError, PlatformError, ValidationIssue
from dmls_core.spec.definitions import MetricDefinition, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Weights = Optional["NDArray[np.float64]"]
"""(n_rows,) weights of rows; None if all count the same."""

Function = Callable[..., float]
"""(truth, prediction) or (truth, prediction, weights) -> score. Truth: (n_rows,) class codes or values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric(MetricDefinition):
    """A metric, registered under its name in the entry point ``dmls.metrics``.

    Attributes:
        function: takes truth and prediction, returns the score; NaN if it is not defined for these rows. The
            prediction of a classification is (n_rows,) class codes, or (n_rows, n_classes) probabilities with
            ``needs_probabilities``; that of a regression is (n_rows,) values.
        per_class: whether its cost grows with the number of classes.
        weighted: whether ``function`` takes the rows' weights, (n_rows,) above 0, as its third argument; it
            is left out if all rows count the same. Others cannot be used with ``[columns] weight``.

    Examples:
        >>> from dmls_core.models.metrics import Metric
        >>> def share_within_one(truth, prediction):
        ...     return (abs(truth - prediction) <= 1).mean()
        >>> WITHIN_ONE = Metric(
        ...     "within_one",
        ...     "regression",
        ...     "maximize",
        ...     "Share of predictions that are off by at most 1.",
        ...     function=share_within_one,
        ... )
        >>> import numpy as np
        >>> WITHIN_ONE.compute(np.array([1.0, 2.0]), np.array([1.5, 4.0]))
        0.5
    """

    function: Function
    needs_probabilities: bool = False
    per_class: bool = False
    weighted: bool = False

    def compute(
        self, truth: NDArray[Any], prediction: NDArray[Any], weights: NDArray[np.float64] | None = None
    ) -> float:
        """Return the score of a prediction; NaN if the metric is not defined for these rows.

        ``truth`` is (n_rows,) class codes or values; for ``prediction``, see ``Fitted.predict``. Rows with a
        weight of 0 do not count.
        """
        if weights is not None:
            counted = weights > 0
            truth, prediction, weights = truth[counted], prediction[counted], weights[counted]
        if not len(truth) or not (weights is None or self.weighted):
            return float("nan")
        if self.task == "classification" and not self.needs_probabilities:
            prediction = prediction.argmax(axis=1)
        with warnings.catch_warnings():
            # scikit-learn warns if a few rows lack a class; users cannot act on that.
            warnings.simplefilter("ignore")
            if weights is None:
                return float(self.function(truth, prediction))
            return float(self.function(truth, prediction, weights))


def compute(
    name: str, truth: NDArray[Any], prediction: NDArray[Any], weights: NDArray[np.float64] | None = None
) -> float:
    """Return the score of a prediction by the metric ``name``; see ``Metric.compute``."""
    return METRICS[name].compute(truth, prediction, weights)


def scorer(name: str) -> Function:
    """Return a metric as a search needs it: it raises ``DataError`` instead of returning NaN."""
    metric = METRICS[name]

    def score(
        truth: NDArray[Any], prediction: NDArray[Any], weights: NDArray[np.float64] | None = None
    ) -> float:
        import numpy as np

        value = metric.compute(truth, prediction, weights)
        if not np.isfinite(value):
            raise DataError(
                ValidationIssue(
                    f"{name} is not defined for {len(truth)} held-out row{'s' if len(truth) != 1 else ''}",
                    key="search.metric",
                    hint="add rows, lower [search] folds, or choose another metric",
                )
            )
        return value

    return score


def metrics_of(task: Task) -> dict[str, Metric]:
    """Return the metrics of one task, by name."""
    return {name: metric for name, metric in METRICS.items() if metric.task == task}


def _registered() -> dict[str, Metric]:
    """Load every registered metric; raise ``PlatformError`` for other objects and duplicate names."""
    metrics: dict[str, Metric] = {}
    owners: dict[str, str] = {}
    for name in extensions.names("dmls.metrics"):
        metric = extensions.load("dmls.metrics", name)
        if not isinstance(metric, Metric):
            raise PlatformError(f"the metric {name!r} is not a dmls_core.models.metrics.Metric")
        if metric.name != name:
            raise PlatformError(
                f"the metric {name!r} has the name {metric.name!r}, not that of its entry point"
            )
        for word in (metric.name, *metric.aliases):
            if (owner := owners.setdefault(word, name)) != name:
                raise PlatformError(f"the metrics {owner!r} and {name!r} are both called {word!r}")
        metrics[name] = metric
    return metrics


METRICS: Mapping[str, Metric] = extensions.LazyMapping(_registered)
"""Every metric by name. Scores are not negated: ``rmse`` is positive, lower is better."""

DEFAULT_METRICS: Mapping[Task, str] = MappingProxyType({"classification": "accuracy", "regression": "r2"})
"""The metric of a spec without one."""


# -- built-in metrics -----------------------------------------------------------------------------------


def _sklearn(name: str, **options: str | int) -> Function:
    """Return a function of ``sklearn.metrics`` by its name, with ``options``."""

    def function(truth: NDArray[Any], prediction: NDArray[Any], weights: Weights = None) -> float:
        from sklearn import metrics

        weighing = {} if weights is None else {"sample_weight": weights}
        return float(getattr(metrics, name)(truth, prediction, **options, **weighing))

    return function


def _mean_over_classes(function: Function) -> Function:
    """Return the mean of a metric of each class against the rest; of two classes, that of the second one.

    It leaves out classes to which no row, or every row, of ``truth`` belongs.
    """

    def mean(truth: NDArray[Any], probabilities: NDArray[Any], weights: Weights = None) -> float:
        import numpy as np

        classes = [1] if probabilities.shape[1] == 2 else range(probabilities.shape[1])
        member = {code: truth == code for code in classes}
        scores = [
            function(rows, probabilities[:, code], weights)
            for code, rows in member.items()
            if rows.any() and not rows.all()
        ]
        return float(np.mean(scores)) if scores else float("nan")

    return mean


# A search computes its metric hundreds of times on a few rows, where scikit-learn's checks of its arguments
# take longer than the rest: the most used metrics do without them.


def _accuracy(truth: NDArray[Any], predicted: NDArray[Any], weights: Weights = None) -> float:
    import numpy as np

    return float(np.average(predicted == truth, weights=weights))


def _log_loss(truth: NDArray[Any], probabilities: NDArray[Any], weights: Weights = None) -> float:
    import numpy as np

    # float32 probabilities sum to 1 in float32 only.
    exact = probabilities.astype(np.float64)
    right = exact[np.arange(len(truth)), truth] / exact.sum(axis=1)
    smallest = np.finfo(np.float64).eps
    return float(-np.average(np.log(np.clip(right, smallest, 1 - smallest)), weights=weights))


def _balanced_accuracy(truth: NDArray[Any], predicted: NDArray[Any], weights: Weights = None) -> float:
    import numpy as np

    members = [truth == code for code in np.unique(truth)]
    return float(
        np.mean(
            [
                np.average((predicted == truth)[rows], weights=None if weights is None else weights[rows])
                for rows in members
            ]
        )
    )


def _rank_auc(member: NDArray[np.bool_], score: NDArray[Any], weights: Weights = None) -> float:
    """Return the area under the ROC curve by the ranks of the scores (Mann and Whitney, 1947); ties share."""
    import numpy as np

    if weights is not None:
        return _sklearn("roc_auc_score")(member, score, weights)
    _, positions, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[positions]
    members = int(member.sum())
    pairs = members * (len(member) - members)
    return float((ranks[member].sum() - members * (members + 1) / 2) / pairs)


def _r2(truth: NDArray[Any], values: NDArray[Any], weights: Weights = None) -> float:
    import numpy as np

    if len(truth) < 2:
        return float("nan")
    exact = truth.astype(np.float64)
    if weights is None:
        error = float(np.square(exact - values).sum())
        variance = float(np.square(exact - exact.mean()).sum())
    else:
        error = float((weights * np.square(exact - values)).sum())
        variance = float((weights * np.square(exact - np.average(exact, weights=weights))).sum())
    if not variance:
        return 0.0 if error else 1.0
    return 1.0 - error / variance


def _explained_variance(truth: NDArray[Any], values: NDArray[Any], weights: Weights = None) -> float:
    if len(truth) < 2:
        return float("nan")
    return _sklearn("explained_variance_score")(truth, values, weights)


ACCURACY = Metric(
    "accuracy",
    "classification",
    "maximize",
    "Share of correctly predicted rows.",
    function=_accuracy,
    weighted=True,
)
BALANCED_ACCURACY = Metric(
    "balanced_accuracy",
    "classification",
    "maximize",
    "Recall, the mean over the classes in the data.",
    function=_balanced_accuracy,
    weighted=True,
)
F1_MACRO = Metric(
    "f1_macro",
    "classification",
    "maximize",
    "F1 score, the mean over the classes.",
    function=_sklearn("f1_score", average="macro", zero_division=0),
    weighted=True,
)
F1_WEIGHTED = Metric(
    "f1_weighted",
    "classification",
    "maximize",
    "F1 score, the mean weighted by the classes' sizes.",
    function=_sklearn("f1_score", average="weighted", zero_division=0),
    weighted=True,
)
PRECISION_MACRO = Metric(
    "precision_macro",
    "classification",
    "maximize",
    "Precision, the mean over the classes.",
    function=_sklearn("precision_score", average="macro", zero_division=0),
    weighted=True,
)
RECALL_MACRO = Metric(
    "recall_macro",
    "classification",
    "maximize",
    "Recall, the mean over the classes.",
    function=_sklearn("recall_score", average="macro", zero_division=0),
    weighted=True,
)
ROC_AUC = Metric(
    "roc_auc",
    "classification",
    "maximize",
    "Area under the ROC curve; of several classes, the mean of each against the rest.",
    ("roc_auc_ovr",),
    function=_mean_over_classes(_rank_auc),
    needs_probabilities=True,
    per_class=True,
    weighted=True,
)
AVERAGE_PRECISION = Metric(
    "average_precision",
    "classification",
    "maximize",
    "Area under the precision-recall curve; of several classes, the mean.",
    function=_mean_over_classes(_sklearn("average_precision_score")),
    needs_probabilities=True,
    per_class=True,
    weighted=True,
)
LOG_LOSS = Metric(
    "log_loss",
    "classification",
    "minimize",
    "Cross-entropy of the predicted probabilities.",
    ("neg_log_loss",),
    function=_log_loss,
    needs_probabilities=True,
    weighted=True,
)
MATTHEWS_CORRCOEF = Metric(
    "matthews_corrcoef",
    "classification",
    "maximize",
    "Matthews correlation coefficient of predicted and true classes.",
    function=_sklearn("matthews_corrcoef"),
    weighted=True,
)
R2 = Metric(
    "r2",
    "regression",
    "maximize",
    "Explained share of the variance; 1 is best.",
    function=_r2,
    weighted=True,
)
RMSE = Metric(
    "rmse",
    "regression",
    "minimize",
    "Root mean squared error.",
    ("neg_root_mean_squared_error", "root_mean_squared_error"),
    function=_sklearn("root_mean_squared_error"),
    weighted=True,
)
MAE = Metric(
    "mae",
    "regression",
    "minimize",
    "Mean absolute error.",
    ("neg_mean_absolute_error", "mean_absolute_error"),
    function=_sklearn("mean_absolute_error"),
    weighted=True,
)
MEDIAN_AE = Metric(
    "median_ae",
    "regression",
    "minimize",
    "Median absolute error.",
    ("neg_median_absolute_error", "median_absolute_error"),
    function=_sklearn("median_absolute_error"),
    weighted=True,
)
MAPE = Metric(
    "mape",
    "regression",
    "minimize",
    "Mean absolute error as a share of the true value.",
    ("neg_mean_absolute_percentage_error", "mean_absolute_percentage_error"),
    function=_sklearn("mean_absolute_percentage_error"),
    weighted=True,
)
MAX_ERROR = Metric(
    "max_error",
    "regression",
    "minimize",
    "Largest absolute error.",
    ("neg_max_error",),
    function=_sklearn("max_error"),
)
EXPLAINED_VARIANCE = Metric(
    "explained_variance",
    "regression",
    "maximize",
    "Like r2, but not affected by a constant error.",
    function=_explained_variance,
    weighted=True,
)
