"""Processes of Triton that ended, and what became of them: one record for each model.

The page, the API, the command line, ``dmls doctor`` and the metrics show these records.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from dmls_core.errors import ObjectMissingError
from dmls_core.store import layout
from dmls_core.store.base import Store

log = logging.getLogger(__name__)

SCHEMA = 1

REMEMBERED = 20
"""Failures of a model that its record names, the latest ones."""

RECENT = timedelta(days=1)
"""Age up to which a failure is shown after its process was reloaded."""


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """A process that ended; times are ISO in UTC, and empty as long as nothing happened.

    Attributes:
        process: name of the model in Triton: a forest, a table endpoint, or the shared process.
        server: HTTP address of the server.
        noticed: when its end was noticed, at most some seconds later.
        reloaded: when it answered again.
        error: why it does not answer yet.
        tried: when it was last reloaded, after which ``attempts`` there were.
    """

    process: str
    server: str
    noticed: str
    reloaded: str = ""
    error: str = ""
    tried: str = ""
    attempts: int = 0

    @property
    def text(self) -> str:
        """Return what happened and what is done about it, as a sentence without its end."""
        ended = f"the process of {self.process} on {self.server} ended (noticed {_time(self.noticed)})"
        if self.reloaded:
            return f"{ended} and was reloaded {_time(self.reloaded)}"
        if self.error:
            return f"{ended} and could not be reloaded: {self.error}"
        return f"{ended} and is being reloaded; until then a part of the requests fails"

    def is_recent(self, now: datetime) -> bool:
        """Return whether the process does not answer, or did not within the last day."""
        return not self.reloaded or now - datetime.fromisoformat(self.noticed) < RECENT


@dataclass(frozen=True, slots=True)
class ProcessFailures:
    """The failures of one model's processes, oldest first, and how often they were reloaded in all."""

    failures: tuple[ProcessFailure, ...] = ()
    reloads: int = 0

    def recent(self) -> list[ProcessFailure]:
        """Return the failures that are shown, latest first."""
        now = datetime.now(UTC)
        return [failure for failure in reversed(self.failures) if failure.is_recent(now)]

    def as_json(self) -> dict[str, object]:
        """Return the JSON object of the record."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, content: object) -> Self:
        """Read the output of ``as_json``; raise ``ValueError`` for other data."""
        try:
            failures = tuple(ProcessFailure(**one) for one in content["failures"])  # type: ignore[index]
            return cls(failures, int(content["reloads"]))  # type: ignore[index]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a record of processes: {error!r}") from error


def _time(iso: str) -> str:
    return f"{iso[:19].replace('T', ' ')} UTC"


def read_process_failures(store: Store, model: str) -> ProcessFailures:
    """Return the failures of the processes of ``<team>.<job>`` or of the shared process.

    A damaged record counts as none, and the next failure replaces it.

    Raises:
        StoreError: the store does not answer.
    """
    return _read(store, layout.process_failures(model))


def write_process_failures(store: Store, model: str, record: ProcessFailures) -> None:
    """Write the record of a model's processes, without its oldest failures."""
    latest = ProcessFailures(record.failures[-REMEMBERED:], record.reloads)
    store.put(layout.process_failures(model), json.dumps(latest.as_json()).encode())


def all_process_failures(store: Store) -> Iterator[tuple[str, ProcessFailures]]:
    """Yield the models of which a process has ended, with their records; see ``read_process_failures``."""
    for info in store.list(layout.PROCESSES):
        model = info.key.removeprefix(layout.PROCESSES).removesuffix(".json")
        names = model.split(".")
        if len(names) <= len(("team", "job")) and all(map(layout.is_name, names)):
            yield model, _read(store, info.key)


def _read(store: Store, key: str) -> ProcessFailures:
    try:
        return ProcessFailures.from_json(json.loads(store.get(key)))
    except ObjectMissingError:
        return ProcessFailures()
    except (ValueError, RecursionError) as error:
        log.warning("%s is damaged: %s", key, error)
        return ProcessFailures()
