"""Definitions of models, hyperparameters, metrics and search spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from dmls_core.spec.data_table import SpecTable
from dmls_core.spec.values import Number, Value

Scalar = bool | int | float | str
"""A hyperparameter's value in a spec. TOML has no null: the word ``"none"`` stands for it."""

Kind = Literal["int", "float", "count", "bool", "choice"]
"""Types of values; ``count`` as in scikit-learn: an integer is a count, a float is a share."""

Task = Literal["classification", "regression"]
Direction = Literal["maximize", "minimize"]

NONE = "none"
"""Python's ``None`` in a spec."""

_FAMILIES = ("lightgbm", "xgboost", "extra-trees", "random-forest", "catboost")

AUTO = {
    f"auto-{task}": tuple(f"{family}-{task}" for family in _FAMILIES) for task in ("classifier", "regressor")
}
"""Names of ``model`` and the models that they stand for; with fewer trials, only the first ones.

A search leaves out what is not worth its time on its data: see ``worth_trying``."""


@dataclass(frozen=True, slots=True)
class HyperparameterDefinition:
    """One hyperparameter of one model.

    Attributes:
        name: in scikit-learn, or in the library's scikit-learn interface.
        default: the library's default, written into every accepted spec.
        low: smallest legal number (of a ``count``: smallest integer).
        high: largest legal number (of a ``count``: largest integer).
        share_high: largest legal float of a ``count``; every legal one is above 0.
        low_open: whether ``low`` itself is illegal.
        choices: legal words; if ``kind`` is ``choice``, its only legal values.
        suggested: the table that a form suggests for a search, if it is not that of the model's ``search``.
    """

    name: str
    kind: Kind
    default: Scalar
    description: str
    low: int | float | None = None
    high: int | float | None = None
    share_high: float = 1.0
    low_open: bool = False
    choices: tuple[str, ...] = ()
    suggested: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric that a search can optimize; ``aliases`` are scikit-learn's scoring names for it."""

    name: str
    task: Task
    direction: Direction
    description: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Requirement:
    """``name`` may differ from its default only if ``needs`` is ``value`` in every trial."""

    name: str
    needs: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class ModelDefinition:
    """A model that a spec can name.

    An engine class lists the definitions of its models. The catalogue fills in the last three attributes.

    Attributes:
        family: groups a classifier and a regressor, such as ``xgboost``.
        missing_values: whether it accepts NaN; otherwise missing values are imputed.
        search: the search space of a spec without hyperparameters: name -> the table of a spec, such as
            ``{"min": 50, "max": 500}`` or ``{"values": [...]}``.
        portfolio: configurations that ``strategy = "auto"`` tries first, if they are within the spec's search
            space; good on many data sets, the best one first. Each has all hyperparameters of ``search``
            but those that one model covers, such as ``n_estimators`` of boosted trees, and a learning rate
            that a rule sets.
        engines: devices on which an installed engine fits it, ``cpu`` or ``gpu``.
        default_metric: the metric of a spec that names none.
    """

    name: str
    task: Task
    family: str
    description: str
    hyperparameters: Mapping[str, HyperparameterDefinition]
    missing_values: bool
    search: Mapping[str, Mapping[str, object]]
    requirements: tuple[Requirement, ...] = ()
    portfolio: tuple[Mapping[str, Scalar], ...] = ()
    engines: tuple[str, ...] = ()
    metrics: Mapping[str, MetricDefinition] = field(default_factory=dict)
    default_metric: str = ""


_GRID_POINTS = 5
"""Number of points of a range without a step in a grid search."""


class Range(SpecTable):
    """Numbers from ``min`` to ``max``, both included; integers if both are integers.

    Attributes:
        min: smallest value.
        max: largest value, above ``min``.
        step: between values, from ``min``; ``None`` is 1 for integers and continuous for floats.
        log: whether values are sampled on a log scale.
    """

    min: Number
    max: Number
    step: Number | None = None
    log: bool = False

    @property
    def integer(self) -> bool:
        """Whether it is a range of integers."""
        return isinstance(self.min, int) and isinstance(self.max, int)

    @property
    def size(self) -> int | None:
        """Number of values; ``None`` for a continuous range."""
        if self.step is None and not self.integer:
            return None
        steps: float = (self.max - self.min) / (self.step or 1)
        # The tolerance makes 0.1 to 0.5 in steps of 0.1 five values.
        return int(steps + 1e-9) + 1 if steps < 2**53 else None

    @property
    def grid_size(self) -> int:
        """Number of values in a grid search: all with a step, else at most ``_GRID_POINTS``."""
        if self.size is not None and (self.step is not None or self.size <= _GRID_POINTS):
            return self.size
        return _GRID_POINTS


class Choice(SpecTable):
    """One of ``values``, in the order of the spec; a single one is a fixed value."""

    values: Annotated[tuple[Value, ...], Field(strict=False, min_length=1)]

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values)

    @property
    def grid_size(self) -> int:
        """Number of values in a grid search: all."""
        return len(self.values)


Hyperparameter = Range | Choice


def fixed(hyperparameters: Mapping[str, Hyperparameter]) -> dict[str, Scalar]:
    """Return the hyperparameters that have one value only."""
    return {
        name: space.values[0]
        for name, space in hyperparameters.items()
        if isinstance(space, Choice) and len(space.values) == 1
    }


def space_size(hyperparameters: Mapping[str, Hyperparameter]) -> int | None:
    """Return the number of different trials; ``None`` if a range is continuous."""
    total = 1
    for space in hyperparameters.values():
        size = space.size
        if size is None:
            return None
        total *= size
    return total


_CATBOOST_LIMIT = 800
"""Classes times columns up to which ``auto-classifier`` tries CatBoost.

The time of its rounds is in proportion: on a few hundred rows, a trial of the largest takes half a minute."""


def worth_trying(models: Sequence[str], n_classes: int, columns: int) -> tuple[str, ...]:
    """Return those of a spec's models that a search tries on data with so many classes and columns.

    Of all models of ``auto-classifier``, it leaves out CatBoost for two classes, where it is seldom better,
    and where its trials take long. In other lists, every model was named by the user.
    """
    names = tuple(models)
    if names != AUTO["auto-classifier"] or 2 < n_classes <= _CATBOOST_LIMIT // max(1, columns):
        return names
    return tuple(name for name in names if name != "catboost-classifier")
