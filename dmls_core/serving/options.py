"""How a model is served beyond which version of it: kept beside its record, whichever version that is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dmls_core.errors import ObjectMissingError
from dmls_core.serving.config import CHALLENGER
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
