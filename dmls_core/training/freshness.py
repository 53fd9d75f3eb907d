"""Which rows of a run's data another run cannot have been trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data import Table, content_hash
from dmls_core.data.cut import Cut, rows_from
from dmls_core.training.request import Job


@dataclass(frozen=True, slots=True)
class Seen:
    """What a finished run read.

    Attributes:
        hash: of the content, after it was cut.
        files: SHA-256 of each file, before it was cut.
        until: end of its interval; ``None``: its data is of no interval.
        split: how its holdout was chosen.
    """

    hash: str
    files: frozenset[str]
    until: datetime | None
    split: Mapping[str, Any]

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Seen:
        """Read it from ``result.json``."""
        data = result["data"]
        until = data.get("until")
        return cls(
            hash=data["hash"],
            files=frozenset(item["sha256"] for item in data["objects"]),
            until=datetime.fromisoformat(until) if until else None,
            split=data.get("split") or {},
        )


def unseen_rows(job: Job, seen: Seen, table: Table) -> NDArray[np.bool_] | None:
    """Say of each row of ``table`` whether the other run cannot have been trained on it.

    * The same content, split in the same way: the same rows were held out then, and none of the holdout was
      trained on. (All rows are told to be unseen: only held-out ones are asked about.)
    * Both of an interval, with ``[columns] time``: the rows from the end of the other run's interval on.
    * Both of an interval, in files: those of files that the other run did not read.

    Returns:
        (n_rows,); ``None`` where nothing is known: data that was dropped anew may hold rows of before.
    """
    request, spec = job.request, job.spec
    if seen.hash == content_hash([file.path for file in job.files]):
        split = {**spec.evaluation.model_dump(), "seed": spec.search.seed}
        return np.full(table.n_rows, fill_value=seen.split == split)
    if request.until is None or seen.until is None:
        return None
    if spec.columns.time:
        cut = Cut(spec.columns.time, seen.until, request.until, spec.timezone)
        parts = [rows_from(file.path, cut, data_format=spec.data.format) for file in job.files]
    else:
        new = [file.sha256 not in seen.files for file in job.files]
        parts = [np.full(height, flag) for height, flag in zip(table.heights, new, strict=True)]
    rows = np.concatenate(parts)
    return rows if table.kept is None else rows[table.kept]
