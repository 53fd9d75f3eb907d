"""Definitions of models, hyperparameters and metrics, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Scalar = bool | int | float | str
"""A hyperparameter's value in a spec. TOML has no null: the word ``"none"`` stands for it."""

Kind = Literal["int", "float", "count", "bool", "choice"]
"""Types of values; ``count`` as in scikit-learn: an integer is a count, a float is a share."""

Task = Literal["classification", "regression"]
Direction = Literal["maximize", "minimize"]

NONE = "none"
"""Python's ``None`` in a spec."""


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
    engines: tuple[str, ...] = ()
    metrics: Mapping[str, MetricDefinition] = field(default_factory=dict)
    default_metric: str = ""
