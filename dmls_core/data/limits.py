"""How large data may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmls_core.limits import Limits


@dataclass(frozen=True, slots=True)
class DataLimits(Limits):
    """Guards against bombs, and against columns that are not what they seem.

    Attributes:
        rows: rows of all files together.
        columns: columns of a file, the unused ones among them.
        cell: bytes of one text.
        categories: distinct values of a feature that ``[columns] categorical`` names.
        found_categories: distinct values up to which a text feature is a category without being named.
        classes: distinct labels of a classifier's target.
        issues: issues reported at once.
    """

    variables: ClassVar[str] = "DMLS_DATA_"

    rows: int = 200_000_000
    columns: int = 10_000
    cell: int = 4_096
    categories: int = 10_000
    found_categories: int = 255
    classes: int = 1_000
    issues: int = 50
