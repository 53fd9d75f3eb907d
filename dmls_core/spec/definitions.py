"""Definitions of models, hyperparameters and metrics, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Scalar = bool | int | float | str
"""A hyperparameter's value as a spec writes it. TOML has no null: the word ``"none"`` stands for it."""

Kind = Literal["int", "float", "count", "bool", "choice"]
"""The values of a hyperparameter, apart from its ``choices``.

``count`` is scikit-learn's convention: an integer is a count, a float is a share.
"""

Task = Literal["classification", "regression"]
Direction = Literal["maximize", "minimize"]

NONE = "none"
"""How a spec writes Python's ``None``."""


@dataclass(frozen=True, slots=True)
class HyperparameterDefinition:
    """One hyperparameter of one model.

    Attributes:
        name: its name in scikit-learn, or in the library's scikit-learn interface.
        kind: the type of its values, apart from ``choices``.
        default: the library's default, written into every accepted spec.
        description: its meaning in one line.
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
    """``name`` may differ from its default only where ``needs`` is ``value`` in every trial."""

    name: str
    needs: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class ModelDefinition:
    """A model that a spec can name.

    An engine class lists the definitions of the models that it fits. The catalogue fills in the last three
    attributes.

    Attributes:
        name: the name in a spec, such as ``xgboost-classifier``.
        task: what it predicts.
        family: the kind of model that a classifier and a regressor have in common, such as ``xgboost``.
        description: one line for users.
        hyperparameters: their definitions, by name.
        missing_values: whether it accepts NaN; otherwise missing values are imputed.
        search: the default search space of a spec without hyperparameters: name -> the table of a spec, such
            as ``{"min": 50, "max": 500}`` or ``{"values": [...]}``.
        requirements: rules between hyperparameters.
        engines: devices on which an installed engine fits it, ``cpu`` or ``gpu``.
        metrics: the metrics of its task, by name.
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
