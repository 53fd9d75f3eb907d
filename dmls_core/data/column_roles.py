"""Assign the columns of a file their roles: features, target, categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec import Columns


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """The roles of the columns that are read.

    Features are in the order of the spec, or of the file if the spec names none.
    """

    features: tuple[str, ...]
    target: str
    categorical: frozenset[str]

    @property
    def used(self) -> tuple[str, ...]:
        """Return all columns that are read."""
        return (*self.features, self.target)


def assign_roles(columns: Columns, names: Sequence[str], file: str, line: int | None = 1) -> ColumnRoles:
    """Match the columns of the spec with ``names``, the columns of the (first) file.

    ``line`` is the line of the header; None if the format has no lines. Raises ``DataError`` if a column of
    the spec is missing, a used column occurs twice, or no feature is left.
    """
    named = {
        "columns.target": (columns.target,),
        "columns.features": columns.features,
        "columns.categorical": columns.categorical,
        "columns.drop": columns.drop,
        "columns.sensitive": columns.sensitive,
        "columns.id": (columns.id,),
        "columns.time": (columns.time,),
        "columns.weight": (columns.weight,),
    }
    issues = [
        missing_column(name, names, file, key, line)
        for key, group in named.items()
        for name in group
        if name is not None and name not in names
    ]
    others = {columns.target, *columns.drop, columns.id, columns.time, columns.weight}
    features = columns.features or tuple(dict.fromkeys(name for name in names if name not in others))
    if not columns.features and "" in features:
        issues.append(
            ValidationIssue(
                f"column {names.index('') + 1} has no name",
                file=file,
                line=line,
                hint="name it, list [columns] features, or write the file without row numbers "
                "(pandas: to_csv(index=False))",
            )
        )
    issues += [
        ValidationIssue(
            "the file has this column more than once",
            file=file,
            line=line,
            key=name,
            hint="rename one of them",
        )
        for name in dict.fromkeys((*features, columns.target))
        if name and names.count(name) > 1
    ]
    if not features:
        issues.append(
            ValidationIssue(
                "no column is left as a feature",
                file=file,
                key="columns",
                found=", ".join(names[:20]),
                hint="drop fewer columns",
            )
        )
    if issues:
        raise DataError(issues)
    return ColumnRoles(features, columns.target, frozenset(columns.categorical))


def missing_column(name: str, names: Sequence[str], file: str, key: str, line: int | None) -> ValidationIssue:
    """Return the issue of a column that is missing in a file."""
    lowered = {known.lower(): known for known in reversed(names) if known}
    close = get_close_matches(name.strip().lower(), lowered, n=1)
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return ValidationIssue(
        f"column {name!r} is not in the data",
        file=file,
        line=line,
        key=key,
        found=shown,
        expected=name,
        hint=f"did you mean {lowered[close[0]]!r}?" if close else f"the data has: {shown}",
    )
