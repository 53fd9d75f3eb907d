"""What is served of each job: one record, which the page, the API, the CLI and ``_status`` show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from dmls_core.errors import ObjectMissingError, StoreError
from dmls_core.store import layout
from dmls_core.store.base import Store

_SCHEMA = 1

_REMEMBERED = 20
"""Earlier versions whose run is recorded."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The served version of a job.

    Attributes:
        version: version in Triton.
        metric: metric of ``score``, the served model's own score on its holdout.
        since: ISO time in UTC of the deployment or rollback; ``by`` is who caused it.
        previous: version that was served before.
        run: key of the run that trained it; ``trained`` is the ISO time of its end. Empty if unknown.
        earlier: run and time of other versions, which a rollback may serve again.
    """

    version: int
    metric: str = ""
    score: float | None = None
    since: str = ""
    by: str = ""
    previous: int | None = None
    run: str = ""
    trained: str = ""
    earlier: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return the record as one line."""
        score = f": {self.metric} {self.score:.4f} on its holdout" if self.score is not None else ""
        trained = f", trained {_minute(self.trained)}" if self.trained else ""
        since = f", served since {_minute(self.since)}" if self.since else ""
        return f"version {self.version}{score}{trained}{since}"

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of the record."""
        return {"schema": _SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, content: object) -> ServedModel:
        """Read the output of ``as_json``; raise ``ValueError`` for other data."""
        if not isinstance(content, dict) or type(content.get("version")) is not int:
            raise ValueError("not a record of what is served")
        return cls(**{one.name: content[one.name] for one in fields(cls) if one.name in content})


def _minute(time: str) -> str:
    return f"{time[:16].replace('T', ' ')} UTC"


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
    store: Store,
    team: str,
    job: str,
    version: int,
    model_json: Mapping[str, Any],
    *,
    by: str,
    run: str = "",
    trained: str = "",
) -> ServedModel:
    """Record that a version with this ``model.json`` is served now. A repeated call changes nothing.

    Without ``run`` and ``trained``, they are those of the version's first deployment.

    Raises:
        StoreError: the record could not be written.
    """
    before = read_served(store, team, job)
    if before and before.version == version:
        return before
    earlier = dict(before.earlier) if before else {}
    if before and before.run:
        earlier[str(before.version)] = [before.run, before.trained]
    previous = earlier.pop(str(version), ["", ""])
    run, trained = run or previous[0], trained or previous[1]
    earlier = dict(list(earlier.items())[-_REMEMBERED:])
    since = datetime.now(UTC).isoformat(timespec="seconds")
    metric, score = model_json.get("metric", ""), model_json.get("score")
    served = ServedModel(
        version, metric, score, since, by, before.version if before else None, run, trained, earlier
    )
    store.put(layout.served(team, job), json.dumps(served.as_json()).encode())
    return served
