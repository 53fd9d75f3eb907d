"""The profile of a table: for each column, the number of rows in each of a few bins.

New data is compared with it. Its size is bounded whatever the table: ``_BINS`` + 1 bins for a number,
1 / ``_COMMON_SHARE`` for a category, and no row of the data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import category_text
from dmls_core.data.table.table import Table
from dmls_core.stored_matrix import read_rows

_SCHEMA = 1

_BINS = 10
"""Bins between the smallest and largest value of a number, with equal numbers of rows."""

_COMMON_SHARE = 0.01
"""Share of the rows from which a category has its own bin; all other categories share one."""

_MIN_CATEGORY_ROWS = 10
"""Rows from which a category has its own bin: in a small table chance decides which ones are rare."""

_MAX_TEXT = 100
"""Characters of a category's text; a longer text is cut and identified by its hash."""

ROWS = 200_000
"""Rows that are counted, a random sample of more. The standard error of a share is then about 0.1 %."""

_BLOCK = 16
"""Columns copied from the matrix at a time: reading a row-major matrix column by column is slow."""

Role = Literal["feature", "target", "prediction"]
Kind = Literal["number", "category"]


@dataclass(frozen=True, slots=True)
class Values:
    """One column of data: ``data`` has numbers, or positions in the categories ``texts``; NaN if missing."""

    name: str
    role: Role
    data: NDArray[np.floating[Any]]
    texts: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ProfileColumn:
    """The distribution of a column's values.

    Attributes:
        edges: ascending edges of a column of numbers: bin ``i`` contains the numbers above ``edges[i - 1]``
            up to and including ``edges[i]``; the first bin is the smallest value alone.
        categories: those that have their own bin.
        counts: rows in each bin, or of each category.
        other: rows of all other categories, or outside the edges.
        missing: rows without a value.
        mean: mean of the finite numbers, if there are any.
    """

    name: str
    role: Role
    kind: Kind
    edges: tuple[float, ...]
    categories: tuple[str, ...]
    counts: tuple[int, ...]
    other: int
    missing: int
    mean: float | None

    @property
    def rows(self) -> int:
        """Number of rows that were counted."""
        return sum(self.counts) + self.other + self.missing

    def as_json(self) -> dict[str, Any]:
        """Return the column as plain JSON data."""
        spread: dict[str, Any] = (
            {"edges": list(self.edges), "mean": self.mean}
            if self.kind == "number"
            else {"categories": list(self.categories)}
        )
        return {
            "name": self.name,
            "role": self.role,
            "kind": self.kind,
            "counts": list(self.counts),
            "other": self.other,
            "missing": self.missing,
            **spread,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProfileColumn:
        """Rebuild a column from the result of ``as_json``."""
        return cls(
            name=data["name"],
            role=data["role"],
            kind=data["kind"],
            edges=tuple(data.get("edges", ())),
            categories=tuple(data.get("categories", ())),
            counts=tuple(data["counts"]),
            other=data["other"],
            missing=data["missing"],
            mean=data.get("mean"),
        )


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a model's training data, and of its predictions on the holdout.

    ``columns`` are features, target and prediction; each has the number of rows that it counts.
    """

    rows: int
    columns: tuple[ProfileColumn, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``baseline.json``."""
        return {
            "schema": _SCHEMA,
            "rows": self.rows,
            "columns": [column.as_json() for column in self.columns],
        }

    @classmethod
    def from_json(cls, data: object) -> Profile:
        """Rebuild a profile from the content of ``baseline.json``.

        Raises:
            ValueError: it is something else, or was written by a later release.
        """
        if not isinstance(data, Mapping) or data.get("schema") != _SCHEMA:
            raise ValueError(f"not a baseline of schema {_SCHEMA}")
        try:
            return cls(data["rows"], tuple(map(ProfileColumn.from_json, data["columns"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a baseline: {error!r}") from None


def profile_table(table: Table) -> Profile:
    """Return the profile of a table's features and target."""
    return profile_of(_columns(table), table.n_rows)


def _columns(table: Table) -> Iterator[Values]:
    rows: NDArray[np.int64] = np.arange(min(table.n_rows, ROWS))
    if table.n_rows > ROWS:
        rows = np.random.default_rng(0).choice(table.n_rows, ROWS, replace=False)
        rows.sort()
    for start in range(0, len(table.columns), _BLOCK):
        block = read_rows(table.matrix[:, start : start + _BLOCK], rows).T.copy()
        for column, data in zip(table.columns[start : start + _BLOCK], block, strict=True):
            if column.date is None:  # later data has later dates: that is no drift
                yield Values(column.name, "feature", data, column.categories)
    yield Values(table.target_name, "target", table.target[rows].astype(np.float64), table.labels)


def profile_of(values: Iterable[Values], rows: int) -> Profile:
    """Return the profile of columns of ``rows`` rows."""
    return Profile(rows, tuple(map(_summary, values)))


def with_predictions(profile: Profile, served: NDArray[np.float32], labels: Sequence[str] | None) -> Profile:
    """Return the profile with the model's predictions for rows that it was not fitted on."""
    return replace(profile, columns=(*profile.columns, _summary(predicted(served, labels))))


def predicted(served: NDArray[np.float32], labels: Sequence[str] | None) -> Values:
    """Return a model's predictions as a column: the most probable class, or the value.

    ``served``: (n_rows, n_classes) probabilities or (n_rows,) values.
    """
    if labels is None:
        return Values("prediction", "prediction", served.reshape(-1))
    return Values("prediction", "prediction", served.argmax(axis=1).astype(np.float64), tuple(labels))


def recount(column: ProfileColumn, values: Values) -> ProfileColumn:
    """Count other values in the bins of ``column``."""
    if column.kind == "number":
        counts, other, missing = _binned(values.data, np.array(column.edges))
        return replace(column, counts=counts, other=other, missing=missing, mean=_mean(values.data))
    counted, missing = _counted(values)
    counts = tuple(counted.get(text, 0) for text in column.categories)
    other = sum(counted.values()) - sum(counts)
    return replace(column, counts=counts, other=other, missing=missing)


def commonest(values: Values, without: Iterable[str], most: int) -> list[str]:
    """Return the most frequent categories of a column that are not in ``without``, at most ``most``."""
    counted, _ = _counted(values)
    for text in without:
        counted.pop(text, None)
    ordered = sorted(counted, key=lambda text: (-counted[text], text))
    return [text for text in ordered if counted[text]][:most]


def _summary(values: Values) -> ProfileColumn:
    if values.texts is None:
        return _number_summary(values)
    counted, missing = _counted(values)
    least = max(_MIN_CATEGORY_ROWS, _COMMON_SHARE * len(values.data))
    common = [text for text, count in counted.items() if count >= least]
    categories = sorted(common, key=lambda text: (-counted[text], text))
    counts = tuple(counted[text] for text in categories)
    other = sum(counted.values()) - sum(counts)
    return ProfileColumn(
        values.name, values.role, "category", (), tuple(categories), counts, other, missing, None
    )


_SHARES = np.linspace(0, 1, _BINS + 1)


def _number_summary(values: Values) -> ProfileColumn:
    ordered = np.sort(values.data)  # NaN is last
    missing = int(np.count_nonzero(np.isnan(ordered)))
    present = ordered[: len(ordered) - missing]
    edges, counts = present, np.zeros(0, dtype=np.int64)
    if present.size:
        # The quantiles of NumPy's "inverted_cdf". Edges are values of the column: with few distinct values
        # each one ends its own bin.
        positions = np.ceil(present.size * _SHARES - 1).astype(np.int64).clip(0)
        edges = np.unique(present[positions])
        counts = np.diff(np.searchsorted(present, edges, side="right"), prepend=0)
    return ProfileColumn(
        name=values.name,
        role=values.role,
        kind="number",
        edges=tuple(edges.astype(np.float64).tolist()),
        categories=(),
        counts=tuple(counts.tolist()),
        other=0,
        missing=missing,
        mean=_mean(present),
    )


def _binned(data: NDArray[np.floating[Any]], edges: NDArray[np.float64]) -> tuple[tuple[int, ...], int, int]:
    """Return the rows in each bin, outside the edges, and without a value."""
    present = data[~np.isnan(data)]
    edges = edges.astype(data.dtype)  # exact; otherwise NumPy would copy the column to float64
    bins = np.searchsorted(edges, present, side="left")
    if len(edges):
        bins[present < edges[0]] = len(edges)
    counts = np.bincount(bins, minlength=len(edges) + 1).tolist()
    return tuple(counts[:-1]), counts[-1], len(data) - len(present)


def _counted(values: Values) -> tuple[dict[str, int], int]:
    """Return the rows of each category, and the rows without a value."""
    codes = values.data[~np.isnan(values.data)].astype(np.int64)
    texts = values.texts or ()
    counts = np.bincount(codes, minlength=len(texts)).tolist()
    text_counts: dict[str, int] = {}
    for text, count in zip(texts, counts, strict=True):
        key = _short(category_text(text) or text)
        text_counts[key] = text_counts.get(key, 0) + count
    return text_counts, len(values.data) - len(codes)


def _short(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[: _MAX_TEXT - 18]}… {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]}"


def _mean(data: NDArray[np.floating[Any]]) -> float | None:
    finite = data[np.isfinite(data)]
    return float(finite.mean(dtype=np.float64)) if finite.size else None
