"""How each version of a model answers several requests at once: what was measured, and what was taken."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_core.errors import ObjectMissingError
from dmls_core.serving.config import BOOKKEEPING, SIMPLEST, Scaling, check_model_name
from dmls_core.serving.files import failing
from dmls_core.store import Store

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Measured:
    """What one setting did.

    Attributes:
        scaling: the setting.
        rates: requests per second in each of some parts of the time.
    """

    scaling: Scaling
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which setting was taken, and why.

    Attributes:
        scaling: the setting.
        reason: why, for people.
        measured: all that was measured, in that order; the simplest setting may be there twice.
    """

    scaling: Scaling = SIMPLEST
    reason: str = "not measured"
    measured: tuple[Measured, ...] = ()

    @property
    def text(self) -> str:
        """The choice in words."""
        return f"{describe(self.scaling)}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return the choice as plain JSON data."""
        return {
            **_scaling_json(self.scaling),
            "reason": self.reason,
            "measured": [
                {**_scaling_json(found.scaling), "requests_per_second": list(found.rates)}
                for found in self.measured
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Choice:
        """Read what ``as_json`` returned."""
        return cls(
            _scaling(data),
            data["reason"],
            tuple(
                Measured(_scaling(found), tuple(found["requests_per_second"])) for found in data["measured"]
            ),
        )


def describe(scaling: Scaling) -> str:
    """Return a setting in words."""
    instances = f"{scaling.instances} instance{'s' if scaling.instances > 1 else ''}"
    return instances if scaling.batching else f"{instances}, requests not batched"


def choice_of(store: Store, model: str, version: int) -> Choice:
    """Return how a version answers several requests at once; the simplest where nothing was measured.

    Raises:
        ServingError: the repository could not be read.
    """
    return _read(store, model).get(version, Choice())


def note_choice(store: Store, model: str, version: int, choice: Choice, known: Sequence[int]) -> None:
    """Note a version's choice, and forget those of versions that are not ``known`` any more.

    Raises:
        ServingError: the repository could not be read or written.
    """
    choices = {v: c for v, c in _read(store, model).items() if v in known} | {version: choice}
    content = {"schema": SCHEMA, "versions": {str(v): c.as_json() for v, c in sorted(choices.items())}}
    with failing(f"write what was measured of {model}"):
        store.put(_key(model), json.dumps(content).encode())


def _read(store: Store, model: str) -> dict[int, Choice]:
    with failing(f"read what was measured of {model}"):
        try:
            found = json.loads(store.get(_key(model)))["versions"]
        except ObjectMissingError:
            return {}
    return {int(version): Choice.from_json(data) for version, data in found.items()}


def _key(model: str) -> str:
    return f"{BOOKKEEPING}/{check_model_name(model)}/measured.json"


def _scaling_json(scaling: Scaling) -> dict[str, Any]:
    return {"instances": scaling.instances, "batching": scaling.batching}


def _scaling(data: Mapping[str, Any]) -> Scaling:
    return Scaling(data["instances"], data["batching"])
