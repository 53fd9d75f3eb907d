"""One trial, as it is kept on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dmls_core.spec.definitions import Scalar

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Surface:
    """Scores of many settings that one grown model answers.

    Attributes:
        axes: the settings' hyperparameters, each with its values: ``{"n_estimators": (50, 100), ...}``.
        values: one score per setting, the last axis running fastest.
    """

    axes: Mapping[str, tuple[Scalar, ...]]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluated set of hyperparameters.

    Attributes:
        number: from 0, in the order in which they were suggested.
        state: ``failed`` where the library refused the hyperparameters: it has no value. ``pruned`` where
            it was given up early: its value is what it had then, and it is never the best.
        engine: what fitted it.
        params: the searched hyperparameters by the spec's names.
        value: mean of ``values``.
        values: score on each fold.
        seconds: how long it took.
        same_as: number of the earlier trial with the same hyperparameters, whose value it has.
        message: why it failed, or when it was given up.
        steps: how far it was taken (trees, rounds or folds), where a search takes trials in steps.
        surface: what else the same model answered; ``params`` is its best setting.
        intermediate_values: the score after each step, where there are steps; pruning compares them. Equal
            scores may differ by a tie break.
        model: the model that it tries, where several compete or several trainers search.
    """

    number: int
    state: Literal["complete", "pruned", "failed"]
    engine: str
    params: Mapping[str, Scalar]
    value: float | None = None
    values: tuple[float, ...] = field(default=())
    seconds: float = 0.0
    same_as: int | None = None
    message: str = ""
    steps: int | None = None
    surface: Surface | None = None
    intermediate_values: tuple[float, ...] = field(default=())
    model: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what ``trials/NNNNN.json`` holds."""
        return {"schema": SCHEMA, **asdict(self), "values": list(self.values)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trial:
        """Read what ``as_json`` returned.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ValueError("not a trial of this release")
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        try:
            surface = known.get("surface")
            return cls(
                **{
                    **known,
                    "values": tuple(known.get("values", ())),
                    "intermediate_values": tuple(known.get("intermediate_values", ())),
                    "surface": surface and _surface(surface),
                }
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a trial: {error!r}") from error


def contiguous_trials(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials from number 0 up to the first gap: what follows one depends on what is missing."""
    ordered = sorted(trials, key=lambda trial: trial.number)
    return [trial for position, trial in enumerate(ordered) if trial.number == position]


def _surface(data: dict[str, Any]) -> Surface:
    axes = {name: tuple(values) for name, values in data["axes"].items()}
    return Surface(axes, tuple(data["values"]))
