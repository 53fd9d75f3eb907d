"""How a model is served beyond which version of it: inference log, canary, and scaling per version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dmls_core.errors import ObjectMissingError
from dmls_core.serving.model_config import BOOKKEEPING, CHALLENGER, SIMPLEST, Scaling, check_model_name
from dmls_core.serving.repository_files import failing
from dmls_core.store import Store

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Canary:
    """A challenger that part of the table endpoint's requests are sent to.

    Attributes:
        version: the challenger, in the repository.
        share: share of the requests.
        shadow: whether the served version answers these as well, and the user gets its answer.
    """

    version: int
    share: float
    shadow: bool


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """What the job's spec says of serving.

    Attributes:
        log_share: share of the table endpoint's rows that are logged; 0: none.
        log_leave_out: columns that are never logged.
        canary: a challenger, if one is tried; this is not the spec's.
    """

    log_share: float = 0.0
    log_leave_out: tuple[str, ...] = ()
    canary: Canary | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``options.json``."""
        return {
            "schema": SCHEMA,
            "log_share": self.log_share,
            "log_leave_out": list(self.log_leave_out),
            "canary": asdict(self.canary) if self.canary else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ServingOptions:
        """Read what ``as_json`` returned."""
        canary = data["canary"]
        return cls(data["log_share"], tuple(data["log_leave_out"]), Canary(**canary) if canary else None)

    def parameters(self, model: str) -> dict[str, str]:
        """Return what the configuration of a model's table endpoint says of this, by key."""
        found = {}
        if self.log_share:
            found["log"] = json.dumps({"share": self.log_share, "leave_out": list(self.log_leave_out)})
        if self.canary:
            found["canary"] = json.dumps({"model": model + CHALLENGER, **asdict(self.canary)})
        return found


def read_options(store: Store, key: str) -> ServingOptions:
    """Return what was noted; the defaults where nothing was."""
    try:
        return ServingOptions.from_json(json.loads(store.get(key)))
    except ObjectMissingError:
        return ServingOptions()


def write_options(store: Store, key: str, options: ServingOptions) -> None:
    """Note options, unless they are noted already."""
    if options != read_options(store, key):
        store.put(key, json.dumps(options.as_json()).encode())


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
