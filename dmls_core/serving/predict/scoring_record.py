"""The state of a file's predictions: one record next to them, which the page and the CLI show."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal

from dmls_core.errors import ObjectMissingError
from dmls_core.store import Store, layout
from dmls_core.visible_text import visible

logger = logging.getLogger(__name__)

_SCHEMA = 1
ENDING = ".json"

State = Literal["scoring", "scored", "failed"]


@dataclass(frozen=True, slots=True)
class ScoringRecord:
    """The state of one file's predictions; ``scored/<team>/<job>/<file>.json``.

    Attributes:
        uploaded: ISO time at which the file was written to ``scoring/``; empty if a service failed, so that
            the file is tried again.
        content: identifies the scored rows: the ETag of a file, or a hash of a table's rows.
        version: the version in Triton that predicted all rows.
        result: key of the predictions, once the state is ``scored``.
        progress: share of the rows that are predicted, 0 to 1.
        errors: as in ``_status.json``.
        updated: ISO time in UTC.
    """

    state: State
    file: str
    uploaded: str
    content: str
    version: int
    result: str = ""
    rows: int = 0
    progress: float = 0.0
    message: str = ""
    errors: Sequence[Mapping[str, Any]] = ()
    updated: str = ""


def write_record(store: Store, team: str, job: str, record: ScoringRecord) -> ScoringRecord:
    """Write a file's record, and return it with the time of this update."""
    written = replace(record, updated=datetime.now(UTC).isoformat(timespec="seconds"))
    content = {"schema": _SCHEMA, **asdict(written)}
    store.put(layout.scored_file(team, job, record.file) + ENDING, json.dumps(content, indent=1).encode())
    return written


def read_record(store: Store, team: str, job: str, file: str) -> ScoringRecord | None:
    """Return a file's record; ``None`` if it was never scored, or the record is damaged."""
    key = layout.scored_file(team, job, file) + ENDING
    try:
        content = json.loads(store.get(key))
        return ScoringRecord(**{field.name: content[field.name] for field in fields(ScoringRecord)})
    except ObjectMissingError:
        return None
    except (ValueError, TypeError, KeyError, RecursionError):
        logger.warning("%s is damaged: the file is scored again", visible(key))
        return None
