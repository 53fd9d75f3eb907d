"""Former names of modules that Airflow stores: in serialized DAGs, triggers, deadlines and DAG files.

A platform that is upgraded loads them by these names until its DAGs are parsed again and its triggers have
ended. The paths that it stores now are in ``docs/decisions/0003``.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TypeVar

_T = TypeVar("_T")

_FORMER_NAMES = {
    "deadlines": ["jobs.deadlines"],
    "intake_dag": ["intake.intake_dag"],
    "job_dag": ["jobs.job_dag"],
    "monitor_dag": ["operations.monitor_dag"],
    "priority": ["jobs.priority"],
    "repair_dag": ["operations.repair_dag"],
    "score_dag": ["operations.score_dag"],
    "timetables": ["jobs.timetables"],
    "triggers": [
        "intake.submission_trigger",
        "jobs.partition_trigger",
        "operations.interruption_trigger",
        "operations.scoring_trigger",
    ],
}
"""Former name of a module -> the modules that hold what it held, all below ``dmls_core.airflow``."""

_PARENT = "dmls_core.airflow."


class FormerNames(MetaPathFinder, Loader):
    """Import a module by its former name, with the names of the modules that took its place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a former name, and None for all others."""
        if not fullname.startswith(_PARENT) or fullname.removeprefix(_PARENT) not in _FORMER_NAMES:
            return None
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the module with the public names of its successors."""
        for successor in _FORMER_NAMES[module.__name__.removeprefix(_PARENT)]:
            names = vars(import_module(_PARENT + successor)).items()
            vars(module).update({name: value for name, value in names if not name.startswith("_")})


def under_former_name(registered: type[_T]) -> type[_T]:
    """Return a subclass that has the former path of a class.

    Airflow does not import the timetables and priority strategies of serialized DAGs: it looks their paths up
    among those that plugins register. A run that began before the upgrade keeps its serialized DAG.
    """
    module = registered.__module__.removeprefix(_PARENT)
    (former,) = (name for name, successors in _FORMER_NAMES.items() if module in successors)
    return type(registered.__name__, (registered,), {"__module__": _PARENT + former})
