"""The record that the registry keeps of a job."""

from __future__ import annotations

import dataclasses
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class DataObject:
    """One data object of a job, pinned to the content that was admitted."""

    key: str
    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The current accepted version of a job.

    Attributes:
        team: owner of the job.
        name: the job's name within the team.
        spec_sha256: names the accepted spec.
        data: the data objects, in order of keys.
        run_key: names the run that this version asks for.
        admitted: ISO time in UTC with microseconds.
        version: 1, 2, 3, ... counts accepted changes.
        state: "retired" once the submission was removed.
        fingerprint: of the submission that was accepted.
    """

    team: str
    name: str
    spec_sha256: str
    data: tuple[DataObject, ...]
    run_key: str
    admitted: str
    version: int
    state: Literal["active", "retired"] = "active"
    fingerprint: str = ""

    @property
    def admitted_at(self) -> datetime:
        """``admitted`` as a moment in UTC."""
        return datetime.fromisoformat(self.admitted)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that the registry keeps."""
        return {"schema": SCHEMA, **asdict(self), "data": [asdict(item) for item in self.data]}

    @classmethod
    def from_json(cls, fields: object) -> JobRecord:
        """Build a record from what ``as_json`` returned.

        Raises:
            ValueError: it is something else, or of a later schema.
        """
        if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
            raise ValueError("not a job record of a known schema")
        try:
            values = {name: fields[name] for name in FIELDS}
            return cls(**values | {"data": tuple(DataObject(**item) for item in values["data"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a job record: {error}") from error


FIELDS = tuple(field.name for field in dataclasses.fields(JobRecord))
"""Asked once: a registry of thousands of jobs is read at a time."""
