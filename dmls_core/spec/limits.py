"""How large a spec may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmls_core.limits import Limits


@dataclass(frozen=True, slots=True)
class SpecLimits(Limits):
    """Guards against bombs, and against typing errors that would cost a fortune.

    Attributes:
        bytes: size of ``spec.toml``.
        depth: nesting of tables, arrays and dotted keys.
        items: keys, tables and list elements in all.
        text: characters of one key or string.
        columns: names in any list of columns.
        values: values of one hyperparameter.
        trials: ``n_trials``.
        range_width: ``max - min`` of an integer range.
        grid: points of a grid search.
        models: models in one spec.
        tags: entries of ``[tags]``.
        issues: issues reported at once; the rest is counted.
    """

    variables: ClassVar[str] = "DMLS_SPEC_"

    bytes: int = 256 * 1024
    depth: int = 8
    items: int = 12_000
    text: int = 1_000
    columns: int = 10_000
    values: int = 1_000
    trials: int = 10_000
    range_width: int = 1_000_000
    grid: int = 100_000
    models: int = 8
    tags: int = 64
    issues: int = 100
