"""What a look of the monitor finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmls_core.monitoring import Drift


@dataclass(frozen=True, slots=True)
class Watched:
    """A job whose spec asks for drift to be watched.

    Attributes:
        team: of the job.
        name: of the job.
        spec: as JSON.
    """

    team: str
    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Checked:
    """A comparison that was made and written down.

    Attributes:
        job: what was compared.
        source: ``requests``, or the partition's name.
        drift: what was found.
        version: the champion's, in MLflow's registry.
        page: address of the page about it.
        retrain_run_id: of the run that is to be started; empty: none.
    """

    job: Watched
    source: str
    drift: Drift
    version: int
    page: str
    retrain_run_id: str


@dataclass(slots=True)
class Look:
    """What one look at all jobs found.

    Attributes:
        checked: the comparisons with the training data.
        judged: how many looks at labels judged a model.
        retrains: the runs to start, each a DAG and the run's name.
        states: key -> content of the files that note up to where was compared, to be written once what
            drift asks for was started.
        failed: why others could not be made, a line each.
    """

    checked: list[Checked] = field(default_factory=list)
    judged: int = 0
    retrains: set[tuple[str, str]] = field(default_factory=set)
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
