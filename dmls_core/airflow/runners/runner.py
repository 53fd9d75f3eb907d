"""The base class of runners, which find, watch and end trainers by their keys."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from dmls_core import extensions
from dmls_core.airflow.runners.gpu_placement import GpuSurvey
from dmls_core.airflow.settings import AirflowSettings

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

IsActive = Callable[[str, str], bool]
"""``(DAG id, run id)`` -> whether Airflow runs the task ``search`` of that run."""

LOST = -1
"""Exit code of a trainer whose real one is unknown."""

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_THREADS = ThreadPoolExecutor(max_workers=8, thread_name_prefix="dmls-trainers")
"""The threads in which triggers call runners and stores; they start with the first call."""


async def in_thread(function: Callable[..., _T], *args: object) -> _T:
    """Call a function that blocks from the triggerer's event loop; its log is the trigger's."""
    call = partial(copy_context().run, function, *args)
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)


@dataclass(frozen=True, slots=True)
class TrainerExit:
    """How a trainer ended.

    Attributes:
        code: exit code; negative: minus the number of the signal that ended it, or ``LOST``.
        reason: continues "the trainer ..." in messages; by default "exited with code ...".
        details: more, as JSON for the run's ``runner.json``; no secrets.
    """

    code: int
    reason: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


class Runner(ABC):
    """Watch and end trainers: containers, processes, pods.

    A package registers its subclass under the entry-point group ``dmls.runners``. The task ``search`` starts
    a trainer under a key; from then on workers and the triggerer know it by that key alone. Both create
    runners of their own, so a runner keeps nothing about trainers in memory.

    Examples:
        A runner that builds on another one, and requires ``nice``:

        >>> import shutil
        >>> from dmls_core.airflow.runners.process.runner import ProcessRunner
        >>> class NiceRunner(ProcessRunner):
        ...     def check(self):
        ...         missing = [] if shutil.which("nice") else ["`nice` is missing: install coreutils"]
        ...         return missing + super().check()
        >>> NiceRunner(settings).exists("dmls.lab.iris.trainer.run.1")
        False
    """

    operator_class: ClassVar[type[BaseOperator]]
    """Airflow operator of the task ``search``, which starts the trainer: a ``TrainerOperator``."""

    sends_events: ClassVar[bool] = False
    """Whether ``changes`` reports the ends of trainers; if not, triggers ask every second."""

    starts_nodes: ClassVar[Literal["", "processes", "trainers"]] = ""
    """How the nodes of ``[resources] nodes`` start: the trainer starts child processes, or the operator
    starts the trainers of ``node_trainers``, which ``stop`` and ``reap`` end, too. Empty: not at all."""

    min_age_seconds: float = 60.0
    """Age below which ``reap`` spares a trainer: Airflow may not show its task as running yet."""

    def __init__(self, settings: AirflowSettings) -> None:
        self.settings = settings

    @abstractmethod
    def check(self) -> list[str]:
        """Return what this machine lacks, each with the remedy; ``dmls doctor`` calls it."""

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Return whether a trainer was started under ``key`` and not yet removed by ``stop``."""

    @abstractmethod
    def exit_of(self, key: str) -> TrainerExit | None:
        """Return how a trainer ended, with the code ``LOST`` if nothing is left of it; None while it runs."""

    @abstractmethod
    def read_log(self, key: str, position: str) -> tuple[list[str], str]:
        """Return the lines written since ``position``, at first ``""``, and the next position."""

    @abstractmethod
    def stop(self, key: str) -> None:
        """End the trainer within 5 seconds and remove all that is left of it; do nothing if there is none."""

    @abstractmethod
    def reap(self, is_active: IsActive) -> list[str]:
        """End this platform's trainers whose task no longer runs; return their ids.

        The monitor DAG calls it on every run. It must spare trainers that are younger than
        ``min_age_seconds`` and those of other platforms.
        """

    @property
    def service_errors(self) -> tuple[type[Exception], ...]:
        """What the methods raise while the runner's service does not answer: the trigger tries again."""
        return (OSError,)

    def survey_gpus(self) -> GpuSurvey:
        """Return the GPUs and their leases, for a runner whose operator raises ``GpusBusyError``."""
        raise NotImplementedError

    def changes(self) -> Iterator[str]:
        """Yield keys of trainers that may have ended, as the service reports them, until it disconnects.

        A thread of the triggerer reads them for all trainers of a runner that ``sends_events``.
        """
        return iter(())


def load_runner(settings: AirflowSettings) -> Runner:
    """Return the runner that ``settings.runner`` names; raise ``PlatformError`` if it is not installed."""
    runner: type[Runner] = extensions.load("dmls.runners", settings.runner)
    return runner(settings)
