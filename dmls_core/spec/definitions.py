"""What the spec must know of a model: its hyperparameters, engines and metrics, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Scalar = bool | int | float | str
"""A hyperparameter's value as a spec writes it. TOML has no null: the word ``"none"`` stands for it."""

Kind = Literal["int", "float", "count", "bool", "choice"]
"""What a hyperparameter takes besides its ``choices``.

``count`` is scikit-learn's convention: an integer is a number of things, a float a share of them.
"""

Task = Literal["classification", "regression"]
Direction = Literal["maximize", "minimize"]

NONE = "none"
"""How a spec writes Python's ``None``."""


@dataclass(frozen=True, slots=True)
class HyperparameterDefinition:
    """One hyperparameter of one model.

    Attributes:
        name: as scikit-learn spells it (or the library's own scikit-learn interface).
        kind: what it takes besides ``choices``.
        default: the library's own default, written into every accepted spec.
        description: one line for people.
        low: smallest legal number; for ``count`` of the integers.
        high: largest legal number; for ``count`` of the integers.
        share_high: largest legal float of a ``count``; the smallest lies above 0.
        low_open: whether ``low`` itself is illegal.
        choices: words it takes (all it takes, where ``kind`` is ``choice``).
        engine_names: engine -> the name that the engine gives it, where it differs.
        engine_values: engine -> spec value -> the engine's value, where it differs. ``"none"`` is
            ``None`` unless it says otherwise.
        aliases: engine -> spec value -> spec value that the engine treats as the very same.
        unsupported: engine -> why the engine cannot vary it from its default.
        unsupported_values: engine -> values that the engine does not know.
        shares_only: engines that take a ``count`` as a float share only.
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
    engine_names: Mapping[str, str] = field(default_factory=dict)
    engine_values: Mapping[str, Mapping[str, Scalar | None]] = field(default_factory=dict)
    aliases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    unsupported_values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    shares_only: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric that a search can optimise; ``aliases`` are scikit-learn's scoring names for it."""

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
    """One model of the catalogue.

    Attributes:
        name: as a spec writes it.
        task: what it predicts.
        family: the library's kind of model, shared by classifier and regressor.
        description: one line for people.
        hyperparameters: by name.
        engines: the engines that can fit it.
        metrics: what it can be scored by, by name.
        default_metric: the metric of a spec that names none.
        missing_values: whether it takes NaN as it is.
        search: what is searched when a spec lists no hyperparameter: name -> the table a user would
            have written, such as ``{"min": 50, "max": 500}`` or ``{"values": [...]}``.
        requirements: rules between hyperparameters.
    """

    name: str
    task: Task
    family: Literal["random-forest", "extra-trees", "xgboost", "lightgbm"]
    description: str
    hyperparameters: Mapping[str, HyperparameterDefinition]
    engines: tuple[str, ...]
    metrics: Mapping[str, MetricDefinition]
    default_metric: str
    missing_values: bool
    search: Mapping[str, Mapping[str, object]]
    requirements: tuple[Requirement, ...] = ()
