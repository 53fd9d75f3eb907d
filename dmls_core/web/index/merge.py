"""Rows out of what the store, Airflow and Triton say."""

from __future__ import annotations

from collections.abc import Mapping

from dmls_core.web.index.row import JobRow
from dmls_core.web.index.scheduled import Outcomes, ScheduledJobs
from dmls_core.web.index.stored import Place, StoredJobs

UNKNOWN = Outcomes()


def merge(stored: StoredJobs, scheduled: ScheduledJobs, served: Mapping[str, int]) -> tuple[JobRow, ...]:
    """Return a row for every job, and for every drop that has not become one."""
    places = stored.records.keys() | stored.statuses.keys()
    return tuple(_row(place, stored, scheduled, served) for place in sorted(places))


def _row(place: Place, stored: StoredJobs, scheduled: ScheduledJobs, served: Mapping[str, int]) -> JobRow:
    team, name = place
    record, status = stored.records.get(place), stored.statuses.get(place)
    gist = stored.specs.get(record.spec_sha256) if record else None
    dag_id = f"dmls.{team}.{name}"
    dag, outcomes = scheduled.dags.get(dag_id), scheduled.outcomes.get(dag_id, UNKNOWN)
    wait, version = scheduled.waits.get(dag_id), served.get(f"{team}.{name}")
    retired = record is not None and record.state == "retired" and (not status or status.state == "waiting")
    if retired:
        state, message = "retired", "The spec was taken away; the history stays."
    elif status:
        state, message = status.state, status.message
    else:
        state, message = "registered", "Its answer is being read."
    return JobRow(
        team=team,
        name=name,
        state=state,
        message=message,
        owner=(gist.owner if gist else "") or team,
        models=gist.models if gist else (),
        metric=outcomes.metric,
        direction=outcomes.direction,
        scores=tuple(outcomes.scores.values()),
        served=version,
        champion=outcomes.models.get(version) if version else None,
        version=record.version if record else None,
        paused=bool(dag and dag.paused),
        next_run=dag.next_run.isoformat() if dag and dag.next_run and not retired else None,
        drift=stored.drift.get(place),
        queue=wait.place if wait else None,
        waiting=wait.reason if wait else "",
        updated=status.updated if status else record.admitted if record else "",
    )
