"""``[columns]``: each column has one role, and each list names a column once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmls_core.settings import SpecLimits
from dmls_core.spec.findings import Findings
from dmls_core.spec.positions import Path
from dmls_core.spec.tables import Columns

_ONE_COLUMN = ("target", "id", "time", "weight")


def check_columns(columns: Columns, table: dict[str, Any], findings: Findings, limits: SpecLimits) -> None:
    """Note what is wrong between the keys of ``[columns]``; ``table`` is what the spec said."""
    roles: dict[str, str] = {}
    for role in _ONE_COLUMN:
        name = getattr(columns, role)
        if name is not None and roles.setdefault(name, role) != role:
            findings.add(("columns", role), f"is the {roles[name]} column too", found=name)
    for key in ("features", "categorical", "drop", "sensitive"):
        _check_names(getattr(columns, key), ("columns", key), findings, limits)
    if table.get("features") == []:
        findings.add(
            ("columns", "features"), "is empty", found=[], hint="leave it out to take all other columns"
        )
    _check_roles("features", columns.features, roles, findings)
    _check_roles("drop", columns.drop, roles | dict.fromkeys(columns.features, "feature"), findings)
    _check_features("categorical", columns, roles, findings)
    _check_features("sensitive", columns, roles, findings)


def _check_names(names: Sequence[str], path: Path, findings: Findings, limits: SpecLimits) -> None:
    if len(names) > limits.columns:
        most = f"at most {limits.columns:,}"
        findings.add(path, "names too many columns", found=names, expected=most)
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            findings.add((*path, index), "is there twice", found=name, hint="name each column once")
        seen.add(name)


def _check_roles(key: str, names: Sequence[str], roles: dict[str, str], findings: Findings) -> None:
    for index, name in enumerate(names):
        if name in roles:
            findings.add(
                ("columns", key, index),
                f"is a {roles[name]} too" if roles[name] == "feature" else f"is the {roles[name]} column too",
                found=name,
            )


def _check_features(key: str, columns: Columns, roles: dict[str, str], findings: Findings) -> None:
    """Each column of the list ``key`` is a feature, as far as the spec alone tells."""
    features, dropped = set(columns.features), set(columns.drop)
    for index, name in enumerate(getattr(columns, key)):
        path = ("columns", key, index)
        if name in roles:
            findings.add(path, f"is the {roles[name]} column, not a feature", found=name)
        elif name in dropped:
            findings.add(path, "is dropped", found=name)
        elif features and name not in features:
            findings.add(path, "is not a feature", found=name, word=name, names=columns.features)
