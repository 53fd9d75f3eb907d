"""The answers of a run's page: how good the model is, what drives it, where it is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_core.html.formats import decimals

_MAX_DRIVERS = 10
MAX_MATRIX = 25
"""Classes up to which the confusion matrix is a table; more are listed by pairs."""

MAX_PAIRS = 15
_SHADES = 5

Json = Mapping[str, Any]

NO_INSIGHT: Json = {
    **dict.fromkeys(("baseline", "calibration", "residuals", "scatter", "mean_loss"), None),
    **dict.fromkeys(("permutation", "columns", "cells", "worst", "segments", "search"), ()),
}
"""The insight of a run of an earlier release, which wrote none."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Positions (0 to 100) of the scores on one axis; ``None`` for those that do not exist."""

    score: float
    interval: tuple[float, float] | None
    baseline: float | None
    champion: float | None


@dataclass(frozen=True, slots=True)
class Driver:
    """A feature: how much the score loses without it, as text, and the width of its bar (0 to 100).

    ``clear`` says that it loses more than twice the spread between shuffles.
    """

    name: str
    loss: str
    width: float
    clear: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the confusion matrix; ``examples`` is the position of its examples, if there are any."""

    true: int
    predicted: int
    rows: int
    shade: int
    examples: int | None


@dataclass(frozen=True, slots=True)
class ResultView:
    """What the templates show of a result.

    Attributes:
        verdict: one sentence on the score, and whether it is ``good``, ``bad`` or neither.
        matrix: rows of cells by true class; empty for many classes and for a regression.
        pairs: the most frequent errors, if there are too many classes for a matrix.
        wrong: wrong rows of the holdout, for a classification.
        calibration_gap: mean distance between predicted and observed probabilities.
        parameters: the tuned ones; ``others`` are all others in effect.
    """

    scale: Scale | None
    champion: Json | None
    verdict: tuple[str, str]
    drivers: tuple[Driver, ...]
    matrix: tuple[tuple[Cell, ...], ...]
    pairs: tuple[Cell, ...]
    wrong: int | None
    calibration_gap: float | None
    parameters: Json
    others: Json


def describe_result(result: Json, insight: Json) -> ResultView:
    """Return the view of ``result.json`` and ``insight.json``; the latter is empty for earlier releases."""
    comparison = result.get("comparison") or {}
    champion = comparison if comparison.get("conclusive", comparison.get("comparable")) else None
    cells = _cells(result, insight)
    many = len(result.get("labels") or ()) > MAX_MATRIX
    errors = sorted((cell for row in cells for cell in row if cell.true != cell.predicted and cell.rows),
                    key=lambda cell: -cell.rows)  # fmt: skip
    tuned = result.get("tuned")
    tuned = set(result["best_params"] if tuned is None else tuned)
    calibration = insight.get("calibration")
    return ResultView(
        scale=_scale(result, insight, champion),
        champion=champion,
        verdict=_verdict(result, insight),
        drivers=_drivers(result, insight),
        matrix=() if many else cells,
        pairs=tuple(errors[:MAX_PAIRS]) if many else (),
        wrong=sum(cell.rows for cell in errors) if cells else None,
        calibration_gap=_gap(calibration) if calibration and result.get("labels") else None,
        parameters={name: value for name, value in sorted(result["best_params"].items()) if name in tuned},
        others={name: value for name, value in sorted(result["best_params"].items()) if name not in tuned},
    )


def _scale(result: Json, insight: Json, champion: Json | None) -> Scale | None:
    interval = result["holdout"].get("interval")
    baseline, other = insight.get("baseline"), champion["champion_score"] if champion else None
    scores = [value for value in (result["score"], baseline, other, *(interval or ())) if value is not None]
    low, high = min(scores), max(scores)
    if high <= low:
        return None

    def position(value: float | None) -> float | None:
        return None if value is None else round(4 + 92 * (value - low) / (high - low), 2)

    ends = (position(interval[0]) or 0.0, position(interval[1]) or 0.0) if interval else None
    return Scale(position(result["score"]) or 0.0, ends, position(baseline), position(other))


def _verdict(result: Json, insight: Json) -> tuple[str, str]:
    baseline, interval = insight.get("baseline"), result["holdout"].get("interval")
    if baseline is None or not interval:
        return "", ""
    sign = 1 if result["direction"] == "maximize" else -1
    worst = interval[0] if sign > 0 else interval[1]
    if sign * (worst - baseline) > 0:
        return "Better than the baseline, beyond chance.", "good"
    if sign * (result["score"] - baseline) > 0:
        return "Better than the baseline, but that may be chance: the interval contains the baseline.", "warn"
    return "No better than the baseline: the model has learned nothing from the features.", "bad"


def _drivers(result: Json, insight: Json) -> tuple[Driver, ...]:
    losses = insight.get("permutation") or [[*pair, None] for pair in result.get("permutation", {}).items()]
    losses = sorted(losses, key=lambda entry: -entry[1])[:_MAX_DRIVERS]
    largest = max((entry[1] for entry in losses), default=0.0)
    digits = decimals(largest)

    def text(loss: float, spread: float | None) -> str:
        return f"{loss:,.{digits}f}" + ("" if spread is None else f" ± {spread:,.{digits}f}")

    return tuple(
        Driver(
            name,
            text(loss, spread),
            width=round(100 * max(0.0, loss) / largest, 1) if largest > 0 else 0.0,
            clear=loss > 2 * (spread or 0.0),
        )
        for name, loss, spread in losses
    )


def _cells(result: Json, insight: Json) -> tuple[tuple[Cell, ...], ...]:
    counts: Sequence[Sequence[int]] = result["holdout"].get("confusion") or ()
    examples = {(cell["true"], cell["predicted"]): at for at, cell in enumerate(insight.get("cells") or ())}
    return tuple(
        tuple(
            Cell(true, code, rows, _shade(rows, sum(row)), examples.get((true, code)) if rows else None)
            for code, rows in enumerate(row)
        )
        for true, row in enumerate(counts)
    )


def _shade(rows: int, total: int) -> int:
    return min(_SHADES, 1 + rows * _SHADES // total) if rows and total else 0


def _gap(calibration: Json) -> float:
    """Return the expected calibration error (Naeini et al., 2015)."""
    bins = zip(calibration["predicted"], calibration["observed"], calibration["rows"], strict=True)
    total = max(1, sum(calibration["rows"]))
    return float(sum(rows * abs(predicted - observed) for predicted, observed, rows in bins) / total)
