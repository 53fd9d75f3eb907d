"""Rules of ``[columns]`` and of label files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmls_core.settings import SpecLimits
from dmls_core.spec.data_table import Data
from dmls_core.spec.issues import IssueCollector
from dmls_core.spec.partitions import a_name, parse_names
from dmls_core.spec.positions import Path
from dmls_core.spec.tables import Columns, Drift

_ONE_COLUMN = ("target", "id", "time", "group", "weight")
REQUEST, ROW = "request_id", "row"
"""Columns of a label file that join it with predictions."""


def check_columns(
    columns: Columns, table: dict[str, Any], issues: IssueCollector, limits: SpecLimits
) -> None:
    """Check the keys of ``[columns]`` against each other; ``table`` is the one in the spec."""
    roles: dict[str, str] = {}
    for role in _ONE_COLUMN:
        name = getattr(columns, role)
        if name is not None and roles.setdefault(name, role) != role:
            issues.add(("columns", role), f"is also the {roles[name]} column", found=name)
    for key in ("features", "categorical", "dates", "drop", "sensitive"):
        _check_names(getattr(columns, key), ("columns", key), issues, limits)
    if table.get("features") == []:
        issues.add(("columns", "features"), "is empty", found=[], hint="remove it to use all other columns")
    features = {name: role for name, role in roles.items() if role != "time" or name not in columns.dates}
    _check_roles("features", columns.features, features, issues)
    _check_roles("drop", columns.drop, roles | dict.fromkeys(columns.features, "feature"), issues)
    _check_features("categorical", columns, roles, issues)
    _check_features("dates", columns, features, issues)
    _check_features("sensitive", columns, roles, issues)
    for index, name in enumerate(columns.dates):
        if name in columns.categorical:
            issues.add(("columns", "dates", index), "is also categorical", found=name)


def _check_names(names: Sequence[str], path: Path, issues: IssueCollector, limits: SpecLimits) -> None:
    if len(names) > limits.columns:
        most = f"at most {limits.columns:,}"
        issues.add(path, "names too many columns", found=names, expected=most)
    earlier: set[str] = set()
    for index, name in enumerate(names):
        if name in earlier:
            issues.add((*path, index), "appears twice", found=name, hint="name each column once")
        earlier.add(name)


def _check_roles(key: str, names: Sequence[str], roles: dict[str, str], issues: IssueCollector) -> None:
    for index, name in enumerate(names):
        if name in roles:
            issues.add(
                ("columns", key, index),
                f"is also a {roles[name]}"
                if roles[name] == "feature"
                else f"is also the {roles[name]} column",
                found=name,
            )


def _check_features(key: str, columns: Columns, roles: dict[str, str], issues: IssueCollector) -> None:
    features, dropped = set(columns.features), set(columns.drop)
    for index, name in enumerate(getattr(columns, key)):
        path = ("columns", key, index)
        if name in roles:
            issues.add(path, f"is the {roles[name]} column, not a feature", found=name)
        elif name in dropped:
            issues.add(path, "is dropped", found=name)
        elif features and name not in features:
            issues.add(path, "is not a feature", found=name, word=name, names=columns.features)


def check_labels(columns: Columns, data: Data, drift: Drift | None, issues: IssueCollector) -> None:
    """Check that labels can be joined with logged predictions, and are not training data."""
    if data.labels is None:
        return
    path = ("data", "labels")
    if drift is None or drift.sample == 0:
        key, hint = ("[drift]", "write [drift]") if drift is None else ("drift.sample", "sample = 0.1")
        issues.add(path, f"requires {key}: otherwise no predictions are logged", hint=hint)
    if columns.target in (REQUEST, ROW):
        hint = "rename the target column: label files have their own column of this name"
        issues.add(path, "cannot be combined with this target", found=columns.target, hint=hint)
    try:
        _, expression = parse_names(data.labels)
    except ValueError as error:
        issues.add(path, str(error), found=data.labels, hint='such as "labels/{date}.csv"')
        return
    if data.path is None:
        return
    try:
        _, others = parse_names(data.path)
    except ValueError:
        return  # more stars than a pattern of labels may have: not comparable
    if expression.fullmatch(a_name(data.path)) or others.fullmatch(a_name(data.labels)):
        hint = 'put them into their own folder: labels = "labels/{date}.csv"'
        issues.add(path, "matches training data", found=data.labels, hint=hint)
