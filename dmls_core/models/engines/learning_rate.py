"""The learning rate of boosted trees: its definition, and the rate that ``"auto"`` stands for."""

from __future__ import annotations

from dmls_core.spec.definitions import HyperparameterDefinition

AUTO = "auto"


def learning_rate(default: float) -> HyperparameterDefinition:
    """Return the definition of a library whose own default is ``default``."""
    return HyperparameterDefinition(
        "learning_rate",
        "float",
        default,
        'Weight of each tree; with "auto", the number of rows decides.',
        low=0.0,
        high=1.0,
        low_open=True,
        choices=(AUTO,),
        suggested={"min": 0.01, "max": 0.3, "log": True},
    )
