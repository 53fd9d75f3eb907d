"""How large a submission may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dmls_core.limits import Limits


@dataclass(frozen=True, slots=True)
class IntakeLimits(Limits):
    """Guards that admission holds itself; those of the spec are ``SpecLimits``.

    Attributes:
        data_bytes: all data files of a submission together.
        head_bytes: how much of each data file is looked at.
        columns: columns of a data file.
    """

    variables: ClassVar[str] = "DMLS_INTAKE_"

    data_bytes: int = 100 << 30
    head_bytes: int = 1 << 20
    columns: int = 10_000
