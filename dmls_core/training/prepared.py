"""The encoded data of a run, and how the cache of matrices keeps it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import CategoryFeature, DateFeature, Encoder
from dmls_core.data.split.row_roles import RowRoles
from dmls_core.data.table.table import Table, TableColumn
from dmls_core.monitoring.profile import Profile
from dmls_core.stored_matrix import Matrix, read_rows
from dmls_core.training.champion import ChampionPredictions, FetchedChampion
from dmls_core.training.matrix_cache import Entry, MatrixCache

EDGE_ROWS = 32
"""Maximum rows with unknown and missing categories that are stored with them; an even number."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out rows before their encoding.

    Attributes:
        table: of these rows only.
        rows: their positions in the whole table.
        full_table: the whole table, without columns and targets.
    """

    table: Table
    rows: NDArray[np.integer]
    full_table: Table

    @classmethod
    def of(cls, table: Table, rows: NDArray[np.integer]) -> HeldOut:
        """Copy rows of a table."""
        target, empty = table.target[rows], np.empty((table.n_rows, 0), np.float32)
        return cls(
            Table(table.columns, read_rows(table.matrix, rows), table.target_name, target, table.labels),
            rows,
            replace(table, columns=(), matrix=empty, target=target[:0]),
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """Encoded data; matrices of data larger than memory are in a file.

    Attributes:
        train: (n_train, n_features) float32.
        train_target: (n_train,): int32 class codes, or float64 values.
        test: (n_test, n_features) float32: the held-out rows.
        test_target: (n_test,).
        golden: raw values by column of the first held-out rows, ``GOLDEN_ROWS`` at most.
        edges: raw values by column of rows with unknown and missing categories; see ``edge_rows``.
        labels: the classes; ``None`` for a regression.
        profile: of all rows, for drift detection.
        champion: the champion's predictions of the held-out rows, if there is one.
        left_out: training rows that are not in ``train``, since they do not fit in memory.
        train_roles: times, groups and weights of the rows of ``train``.
        test_roles: of the held-out rows.
        since: the earliest time of the held-out rows in a split by time.
        raw: the held-out rows before their encoding, if they are needed later.
    """

    encoder: Encoder
    train: Matrix
    train_target: NDArray[Any]
    test: Matrix
    test_target: NDArray[Any]
    golden: dict[str, list[Any]]
    edges: dict[str, list[Any]]
    labels: tuple[str, ...] | None
    warnings: tuple[str, ...]
    profile: Profile
    champion: ChampionPredictions | None = None
    left_out: int = 0
    train_roles: RowRoles = field(default_factory=RowRoles)
    test_roles: RowRoles = field(default_factory=RowRoles)
    since: datetime | None = None
    raw: HeldOut | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a regression."""
        return len(self.labels or ())

    @property
    def categories(self) -> tuple[int, ...]:
        """Positions of the columns whose codes are for native categorical splits; none is negative or NaN."""
        features = enumerate(self.encoder.column_features)
        return tuple(
            at for at, feature in features if isinstance(feature, CategoryFeature) and feature.unknown >= 0
        )


def edge_rows(encoder: Encoder, rows: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return copies of ``rows`` with unknown and missing categories, ``EDGE_ROWS`` at most.

    Every categorical column has an unknown value in one of them and a missing value in another.
    """
    columns = [feature for feature in encoder.features if isinstance(feature, CategoryFeature)]
    count, available = min(EDGE_ROWS, 2 * len(columns)), len(next(iter(rows.values())))
    edges = {name: [values[row % available] for row in range(count)] for name, values in rows.items()}
    for number, feature in enumerate(columns):
        unknown = "unknown"
        while unknown in feature.categories:
            unknown += "?"
        edges[feature.name][2 * number % count] = unknown
        edges[feature.name][(2 * number + 1) % count] = None
    return edges


def read_cached(
    cache: MatrixCache,
    encoding: Sequence[bool],
    build: Callable[..., Prepared],
    champion: FetchedChampion | None,
) -> Prepared:
    """Return data of the cache, whose memory all trainers of a machine share; ``build`` it if it is new."""
    name = "-".join(str(int(flag)) for flag in encoding)
    with cache.locked(name):
        entry = cache.load(name)
        if entry is None:
            data = build(keep_raw=True)
            if data.raw is not None:
                cache.keep(name, *_as_entry(data, data.raw))
            entry = cache.load(name)
            if entry is None:
                return replace(data, raw=None)
            return replace(_from_entry(entry), champion=data.champion, raw=None)
    data = _from_entry(entry)
    if champion and data.raw:
        answers = champion.ask(data.raw.full_table, data.raw.rows, data.raw.table)
        data = replace(data, champion=answers)
    return replace(data, raw=None)


def _as_entry(data: Prepared, raw: HeldOut) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts and arrays of an entry of the cache."""
    facts = {
        "encoder": data.encoder.as_json(),
        "golden": data.golden,
        "warnings": data.warnings,
        "profile": data.profile.as_json(),
        "since": data.since.isoformat() if data.since else None,
        "columns": [
            (column.name, column.categories, column.date and asdict(column.date))
            for column in raw.table.columns
        ],
        "rows": raw.full_table.n_rows,
        "heights": raw.full_table.heights,
    }
    arrays = {
        "train": data.train,
        "train_target": data.train_target,
        "test": data.test,
        "test_target": data.test_target,
        "raw": raw.table.matrix,
        "held_out": raw.rows,
        "kept": raw.full_table.row_mask,
    }
    for side, roles in (("train", data.train_roles), ("test", data.test_roles)):
        arrays |= {f"{side}_{role.name}": getattr(roles, role.name) for role in fields(roles)}
    return facts, {name: array for name, array in arrays.items() if array is not None}


def _from_entry(entry: Entry) -> Prepared:
    facts, arrays = entry.facts, entry.arrays
    encoder = Encoder.from_json(facts["encoder"])
    target = encoder.target
    roles = {
        side: RowRoles(*(arrays.get(f"{side}_{role.name}") for role in fields(RowRoles)))
        for side in ("train", "test")
    }
    columns = tuple(
        TableColumn(name, categories and tuple(categories), date and DateFeature(**date))
        for name, categories, date in facts["columns"]
    )
    empty = np.empty((facts["rows"], 0), np.float32)
    full_table = Table(
        (),
        empty,
        target.name,
        arrays["test_target"][:0],
        target.labels,
        heights=tuple(facts["heights"]),
        row_mask=arrays.get("kept"),
    )
    return Prepared(
        encoder=encoder,
        train=arrays["train"],
        train_target=arrays["train_target"],
        test=arrays["test"],
        test_target=arrays["test_target"],
        golden=facts["golden"],
        edges=edge_rows(encoder, facts["golden"]),
        labels=target.labels,
        warnings=tuple(facts["warnings"]),
        profile=Profile.from_json(facts["profile"]),
        train_roles=roles["train"],
        test_roles=roles["test"],
        since=datetime.fromisoformat(facts["since"]) if facts["since"] else None,
        raw=HeldOut(
            Table(columns, arrays["raw"], target.name, arrays["test_target"], target.labels),
            arrays["held_out"],
            full_table,
        ),
    )
