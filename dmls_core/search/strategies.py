"""What a spec's strategy means: which sampler suggests trials, and what gives them up early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sampler = Literal["tpe", "random", "grid", "cma-es"]
Pruning = Literal["none", "halving"]


@dataclass(frozen=True, slots=True)
class SearchStrategy:
    """How trials are chosen and given up.

    Attributes:
        sampler: what suggests them.
        pruning: what gives them up; ``none`` takes every trial to its end.
    """

    sampler: Sampler
    pruning: Pruning = "none"


REDUCTION = 3
"""Successive halving takes the best of so many to the next step."""
