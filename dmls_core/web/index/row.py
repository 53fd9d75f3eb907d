"""One job as the table shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job, or one drop that has not become a job.

    Attributes:
        team: the team that owns it.
        name: its name within the team.
        state: as in ``_status.json``; ``retired`` where the spec was taken away; ``registered`` until its
            answer was read.
        message: the same in words.
        owner: who its spec names; else the team.
        models: what its spec trains.
        metric: by which its runs are compared; empty before the first.
        direction: ``maximize`` or ``minimize``.
        scores: on the holdout, of its runs, the oldest first.
        served: version in Triton that is served, if one is.
        champion: version in MLflow of the model that is served, where a run told it.
        version: of the accepted spec and data.
        paused: whether Airflow starts no runs of it.
        next_run: ISO time, if it has a schedule.
        drift: what the monitor found last, such as ``steady`` or ``drifted``.
        queue: its place among those that wait for a trainer of its kind, from 1.
        waiting: why it waits.
        updated: ISO time of the latest news.
    """

    team: str
    name: str
    state: str = "registered"
    message: str = ""
    owner: str = ""
    models: tuple[str, ...] = ()
    metric: str = ""
    direction: str = ""
    scores: tuple[float, ...] = ()
    served: int | None = None
    champion: int | None = None
    version: int | None = None
    paused: bool = False
    next_run: str | None = None
    drift: str | None = None
    queue: int | None = None
    waiting: str = ""
    updated: str = ""

    @property
    def score(self) -> float | None:
        """The latest run's score."""
        return self.scores[-1] if self.scores else None

    @property
    def dag_id(self) -> str:
        """The DAG by which Airflow decides who sees it; of a drop with unfit names there never is one."""
        return f"dmls.{self.team}.{self.name}"
