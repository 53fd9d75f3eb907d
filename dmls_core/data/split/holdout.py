"""Choose the rows that are held out: at random, by class, by time, or by group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.split.grouping import assign_groups, first_of_last, hash_rows, join_groups
from dmls_core.data.split.row_roles import RowRoles
from dmls_core.data.table.table import Table, check_classes, check_row_counts, split_holdout
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec import Spec

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Holdout:
    """The rows of a table to train on and to hold out, as indices in random order.

    Attributes:
        roles: of all rows of the table.
        since: the earliest time of the held-out rows in a split by time, else None.
        warning: about its size; empty if there is none.
    """

    train: NDArray[np.integer]
    test: NDArray[np.integer]
    roles: RowRoles
    since: datetime | None = None
    warning: str = ""


def hold_out(table: Table, roles: RowRoles, spec: Spec) -> Holdout:
    """Split the rows of a table as the spec asks; the same data and seed give the same split.

    Raises:
        DataError: there are too few rows, times or groups, or one side has only weights of 0.
    """
    if spec.evaluation.group_duplicates:
        same = hash_rows(table.matrix)
        groups = np.unique(same, return_inverse=True)[1].astype(np.int64)
        roles = replace(roles, groups=groups if roles.groups is None else join_groups(roles.groups, same))
    holdout = _by_roles(table, roles, spec)
    if roles.weights is None:
        return holdout
    for rows, side in ((holdout.train, "training"), (holdout.test, "held-out")):
        if not roles.weights[rows].any():
            raise DataError(_issue("columns.weight", f"is 0 in every {side} row", spec.columns.weight or ""))
    # Some hyperparameters are sums of weights: a mean of 1 keeps their meaning.
    weights = roles.weights / roles.weights[holdout.train].mean()
    return replace(holdout, roles=replace(holdout.roles, weights=weights))


def _by_roles(table: Table, roles: RowRoles, spec: Spec) -> Holdout:
    scored = 1 if table.labels else 2  # R² of one row is not defined
    options: dict[str, Any] = {
        "holdout": spec.evaluation.holdout,
        "split": spec.evaluation.split,
        "labels": table.labels,
        "scored": scored,
        "locate_row": table.locate_row,
    }
    if roles.independent:
        train, test = split_holdout(table.target, seed=spec.search.seed, task=spec.task, **options)
        return Holdout(train, test, roles)
    expected = check_row_counts(table.target, **options)
    since = None
    if roles.times is not None:
        _check_count(roles.times, spec, "columns.time", "times", 2)
        first = first_of_last(roles.times, spec.evaluation.holdout)
        held = roles.times >= first
        since = _EPOCH + timedelta(microseconds=first)
        _check_count(roles.times[~held], spec, "columns.time", "times before the held-out rows", 1)
    else:
        groups = np.zeros(table.n_rows, np.int64) if roles.groups is None else roles.groups
        key = "columns.group" if spec.columns.group else "evaluation.group_duplicates"
        _check_count(groups, spec, key, "groups", 1)
        shares = (1 - spec.evaluation.holdout, spec.evaluation.holdout)
        classes = len(table.labels or ())
        parts = assign_groups(groups, table.target, shares, n_classes=classes, seed=spec.search.seed)
        held = parts == 1
        _check_count(groups[~held], spec, key, "groups in the training rows", 0)
    generator = np.random.default_rng(spec.search.seed)
    train, test = (generator.permutation(np.flatnonzero(side)) for side in (~held, held))
    if len(test) < scored or len(train) < 2 * scored:
        key = "columns.time" if since else "columns.group"
        raise DataError(_issue(key, "leaves too few rows on one side", f"{len(train)} and {len(test)} rows"))
    if table.labels:
        check_classes(table.target, train, table.labels, 2, table.locate_row, " left to train on")
    return Holdout(train, test, roles, since, _size_warning(len(test), expected, table.n_rows))


_LEAST_TIMES = 20
"""Different times from which rows in their order look like a series."""


def order_warning(table: Table, roles: RowRoles) -> str:
    """Return a warning if rows that are split at random are in the order of a date; empty if they are not."""
    if not roles.independent:
        return ""
    checked: set[str] = set()
    for position, column in enumerate(table.columns):
        if column.date is None or not column.date.days or column.name in checked:
            continue
        checked.add(column.name)
        days = table.matrix[:, position]  # the first part of a date
        steps = np.diff(days[~np.isnan(days)])
        if (steps != 0).sum() >= _LEAST_TIMES - 1 and ((steps >= 0).all() or (steps <= 0).all()):
            return (
                f"the rows are in the order of {column.name!r}, but held out at random: the score may not "
                f'hold for later rows. Set [columns] time = "{column.name}" and [evaluation] split = "time".'
            )
    return ""


def _check_count(values: NDArray[np.int64], spec: Spec, key: str, what: str, more: int) -> None:
    """Raise ``DataError`` unless there are ``more`` different values than folds."""
    count, least = len(np.unique(values)), spec.search.folds + more
    if count >= least:
        return
    column = spec.columns.time if key == "columns.time" else spec.columns.group
    raise DataError(
        ValidationIssue(
            f"there is a single one of the {what}" if count == 1 else f"there are too few {what}",
            key=key,
            found=f"{count} in {column!r}" if column else str(count),
            expected=f"at least {least} for a holdout and {spec.search.folds} folds",
            hint="lower [search] folds, add rows, or remove the key",
        )
    )


def _issue(key: str, message: str, value: str) -> ValidationIssue:
    return ValidationIssue(message, key=key, found=value, hint="add rows, or change [evaluation] holdout")


def _size_warning(held: int, expected: int, rows: int) -> str:
    if abs(held - expected) <= expected / 2:
        return ""
    return (
        f"{held / rows:.0%} of the rows are held out, not {expected / rows:.0%}: rows of one group or time "
        "stay together, and some have many rows."
    )
