"""One trial, as it is kept on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dmls_core.spec.definitions import Scalar

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluated set of hyperparameters.

    Attributes:
        number: from 0, in the order in which they were suggested.
        state: ``failed`` where the library refused the hyperparameters; it has no value.
        engine: what fitted it.
        params: the searched hyperparameters by the spec's names.
        value: mean of ``values``.
        values: score on each fold.
        seconds: how long it took.
        same_as: number of the earlier trial with the same hyperparameters, whose value it has.
        message: why it failed.
    """

    number: int
    state: Literal["finished", "failed"]
    engine: str
    params: Mapping[str, Scalar]
    value: float | None = None
    values: tuple[float, ...] = field(default=())
    seconds: float = 0.0
    same_as: int | None = None
    message: str = ""

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
            return cls(**{**known, "values": tuple(known.get("values", ()))})
        except TypeError as error:
            raise ValueError(str(error)) from error


def unbroken(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials from number 0 up to the first gap: what follows one depends on what is missing."""
    ordered = sorted(trials, key=lambda trial: trial.number)
    return [trial for position, trial in enumerate(ordered) if trial.number == position]
