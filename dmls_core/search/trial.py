"""One trial, in the form that the run's folder keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from dmls_core.spec.definitions import Scalar

_SCHEMA = 1

State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True, slots=True)
class Surface:
    """Scores of all settings that one model yields.

    ``axes`` maps hyperparameters to their values: ``{"n_estimators": (50, 100), ...}``; the last axis varies
    fastest in ``values``.
    """

    axes: Mapping[str, tuple[Scalar, ...]]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluated set of hyperparameters.

    Attributes:
        number: from 0, in the order of suggestion.
        state: Optuna's state. A ``failed`` trial has no value: the library refused its hyperparameters. The
            value of a ``pruned`` trial is the score of its last step; it is never the best trial.
        engine: device of the engine that fitted it.
        params: the searched hyperparameters, by the spec's names.
        value: mean of ``values``, the scores on each fold.
        same_as: number of the earlier trial with the same hyperparameters, whose scores it repeats.
        message: reason of a failure, or the step of a pruning.
        steps: trees, rounds or folds that it reached.
        surface: all scores that its model yields; ``params`` is the best setting of it.
        intermediate_values: the score after each step, which pruning compares; equal scores may differ by a
            tie break.
        bracket: number, from 0, of the successive halving of its model that it takes part in.
    """

    number: int
    state: State
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
    bracket: int = 0

    def __deepcopy__(self, _memo: dict[int, Any]) -> Trial:
        """Return the trial itself, which is immutable: Optuna copies the attributes of trials often."""
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``trials/NNNNN.json``."""
        return {"schema": _SCHEMA, **asdict(self), "values": list(self.values)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Trial:
        """Read the output of ``as_json``; raise ``ValueError`` for other data."""
        if not isinstance(data, dict) or data.get("schema") != _SCHEMA:
            raise ValueError("not a trial of this release")
        fields = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        try:
            surface = fields.get("surface")
            return cls(
                **{
                    **fields,
                    "values": tuple(fields.get("values", ())),
                    "intermediate_values": tuple(fields.get("intermediate_values", ())),
                    "surface": surface and _surface(surface),
                }
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a trial: {error!r}") from error

    def repeated(self, number: int, params: Mapping[str, Scalar]) -> Trial:
        """Return the trial that suggests the same hyperparameters again, perhaps spelled differently."""
        first = self.number if self.same_as is None else self.same_as
        return replace(self, number=number, params={**self.params, **params}, seconds=0.0, same_as=first)


def contiguous_trials(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials from number 0 to the first gap: later trials depend on the missing one."""
    ordered = sorted(trials, key=lambda trial: trial.number)
    return [trial for position, trial in enumerate(ordered) if trial.number == position]


def _surface(data: dict[str, Any]) -> Surface:
    axes = {name: tuple(values) for name, values in data["axes"].items()}
    return Surface(axes, tuple(data["values"]))
