"""Serving options of a model (inference log, canary) and the scaling chosen for each of its versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dmls_core.errors import ObjectMissingError
from dmls_core.serving.repository.files import failing
from dmls_core.serving.triton.model_config import BOOKKEEPING, CHALLENGER, SIMPLEST, Scaling, check_model_name
from dmls_core.store import Store

_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Canary:
    """A challenger that receives a ``share`` (0 to 1) of the table endpoint's requests.

    With ``shadow``, users get the served version's answer.
    """

    version: int
    share: float
    shadow: bool


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Options for serving a model, whichever version that is.

    Attributes:
        log_share: share of the table endpoint's rows that the inference log keeps; 0: none.
        log_leave_out: columns that are never logged.
        canary: a challenger that is being tried; this is not part of the spec.
    """

    log_share: float = 0.0
    log_leave_out: tuple[str, ...] = ()
    canary: Canary | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``options.json``."""
        return {
            "schema": _SCHEMA,
            "log_share": self.log_share,
            "log_leave_out": list(self.log_leave_out),
            "canary": asdict(self.canary) if self.canary else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ServingOptions:
        """Read the output of ``as_json``."""
        canary = data["canary"]
        return cls(data["log_share"], tuple(data["log_leave_out"]), Canary(**canary) if canary else None)

    def parameters(self, model: str) -> dict[str, str]:
        """Return the parameters of the model's table endpoint that state these options."""
        parameters = {}
        if self.log_share:
            parameters["log"] = json.dumps({"share": self.log_share, "leave_out": list(self.log_leave_out)})
        if self.canary:
            parameters["canary"] = json.dumps({"model": model + CHALLENGER, **asdict(self.canary)})
        return parameters


def read_options(store: Store, key: str) -> ServingOptions:
    """Return the recorded options, or the defaults."""
    try:
        return ServingOptions.from_json(json.loads(store.get(key)))
    except ObjectMissingError:
        return ServingOptions()


def write_options(store: Store, key: str, options: ServingOptions) -> None:
    """Record options, unless they are recorded already."""
    if options != read_options(store, key):
        store.put(key, json.dumps(options.as_json()).encode())


@dataclass(frozen=True, slots=True)
class ScalingMeasurement:
    """The throughput of one scaling; ``rates`` are requests per second, one figure per time window."""

    scaling: Scaling
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ScalingChoice:
    """The scaling chosen for a version, and the reason in words.

    Attributes:
        measured: all measurements in their order; the simplest scaling may occur twice.
    """

    scaling: Scaling = SIMPLEST
    reason: str = "not measured"
    measured: tuple[ScalingMeasurement, ...] = ()

    @property
    def text(self) -> str:
        """The choice in words."""
        return f"{describe_scaling(self.scaling)}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return the choice as plain JSON data."""
        return {
            **asdict(self.scaling),
            "reason": self.reason,
            "measured": [
                {**asdict(measurement.scaling), "requests_per_second": list(measurement.rates)}
                for measurement in self.measured
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScalingChoice:
        """Read the output of ``as_json``."""
        measured = (
            ScalingMeasurement(_scaling(measurement), tuple(measurement["requests_per_second"]))
            for measurement in data["measured"]
        )
        return cls(_scaling(data), data["reason"], tuple(measured))


def describe_scaling(scaling: Scaling) -> str:
    """Return a scaling in words."""
    instances = f"{scaling.instances} instance{'s' if scaling.instances > 1 else ''}"
    return instances if scaling.batching else f"{instances}, requests not batched"


def read_scaling_choice(store: Store, model: str, version: int) -> ScalingChoice:
    """Return the choice recorded for a version; the simplest scaling if nothing was measured."""
    return _read_choices(store, model).get(version, ScalingChoice())


def write_scaling_choice(
    store: Store, model: str, version: int, choice: ScalingChoice, versions: Sequence[int]
) -> None:
    """Record a version's choice, and remove those of versions that are not in ``versions``."""
    choices = {v: c for v, c in _read_choices(store, model).items() if v in versions} | {version: choice}
    content = {"schema": _SCHEMA, "versions": {str(v): c.as_json() for v, c in sorted(choices.items())}}
    with failing(f"write the scaling of {model}"):
        store.put(_choices_key(model), json.dumps(content).encode())


def _read_choices(store: Store, model: str) -> dict[int, ScalingChoice]:
    with failing(f"read the scaling of {model}"):
        try:
            choices = json.loads(store.get(_choices_key(model)))["versions"]
        except ObjectMissingError:
            return {}
    return {int(version): ScalingChoice.from_json(data) for version, data in choices.items()}


def _choices_key(model: str) -> str:
    return f"{BOOKKEEPING}/{check_model_name(model)}/measured.json"


def _scaling(data: Mapping[str, Any]) -> Scaling:
    return Scaling(data["instances"], data["batching"])
