"""What is served of each job: one record, which the page, the API, the CLI and ``_status`` show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from dmls_core.errors import ObjectMissingError, StoreError
from dmls_core.store import layout
from dmls_core.store.base import Store

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The served version of a job.

    Attributes:
        version: version in Triton.
        metric: metric of ``score``, the served model's own score on its holdout.
        since: ISO time in UTC of the deployment or rollback; ``by`` is who caused it.
        previous: version that was served before.
    """

    version: int
    metric: str = ""
    score: float | None = None
    since: str = ""
    by: str = ""
    previous: int | None = None

    @property
    def text(self) -> str:
        """Return the record as one line."""
        score = f": {self.metric} {self.score:.4f} on its holdout" if self.score is not None else ""
        since = f", since {self.since[:16].replace('T', ' ')} UTC" if self.since else ""
        return f"version {self.version}{score}{since}"

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of the record."""
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, content: object) -> ServedModel:
        """Read the output of ``as_json``; raise ``ValueError`` for other data."""
        if not isinstance(content, dict) or type(content.get("version")) is not int:
            raise ValueError("not a record of what is served")
        return cls(**{field.name: content[field.name] for field in fields(cls) if field.name in content})


def read_served(store: Store, team: str, job: str) -> ServedModel | None:
    """Return what is served of a job; ``None`` before its first deployment."""
    try:
        return ServedModel.from_json(json.loads(store.get(layout.served(team, job))))
    except ObjectMissingError:
        return None
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{layout.served(team, job)} is damaged: {error}") from error


def delete_served(store: Store, team: str, job: str) -> None:
    """Record that nothing is served of a job."""
    store.delete(layout.served(team, job))


def write_served(
    store: Store, team: str, job: str, version: int, about: Mapping[str, Any], *, by: str
) -> ServedModel:
    """Record that a version is served now; ``about`` is its ``model.json``. A repeated call changes nothing.

    Raises:
        StoreError: the record could not be written.
    """
    before = read_served(store, team, job)
    if before and before.version == version:
        return before
    since = datetime.now(UTC).isoformat(timespec="seconds")
    metric, score = about.get("metric", ""), about.get("score")
    found = ServedModel(version, metric, score, since, by, before.version if before else None)
    store.put(layout.served(team, job), json.dumps(found.as_json()).encode())
    return found
