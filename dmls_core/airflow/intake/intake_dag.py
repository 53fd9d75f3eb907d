"""The intake DAG: admits or rejects submissions, and writes the answer next to them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import DAG, Asset, AssetWatcher, BaseOperator, Context

from dmls_core.airflow.asset_events import event_entries
from dmls_core.airflow.intake.submission_trigger import submission_trigger
from dmls_core.airflow.notifiers import describe_refused, notify
from dmls_core.airflow.settings import airflow_settings, airflow_url, open_root
from dmls_core.errors import PlatformError, StoreError
from dmls_core.hardware import available_memory
from dmls_core.intake import admit, find_submissions, report_failure
from dmls_core.intake.column_check import LIMITS, Findings
from dmls_core.store import Registry, Store, layout
from dmls_core.visible_text import visible

if TYPE_CHECKING:
    from dmls_core.spec import Spec

_DAG_ID = "dmls.intake"

_SUBMISSIONS = "dmls-submissions"
"""Name of the asset whose watcher starts the intake."""

CHECKS = 4
"""Submissions that a run checks at a time, if there is memory for them: a slow one delays no other."""

_RUNS = 2
"""Runs at a time, for submissions that come while others are being checked."""

TRIES, PAUSE = 3, 1.0
"""Tries of a check that fails for another reason than the submission, and seconds between them."""


class AdmitOperator(BaseOperator):
    """Admit the submissions of the triggering events; all submissions if a user triggered the run."""

    template_fields = ()

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Return team, job, state and message of each submission; fail if one has no answer."""
        store = open_root(airflow_settings())
        changed = {(team, job) for team, job in event_entries(context, "changed")}
        folders = sorted(changed) or [(s.team, s.job) for s in find_submissions(store)]
        outcomes, failed = [], []
        with ThreadPoolExecutor(checks_at_once()) as pool:
            answers = {folder: pool.submit(self._answer, store, *folder) for folder in folders}
            try:
                for (team, job), answer in answers.items():
                    try:
                        outcomes.append(answer.result())
                    except StoreError as error:
                        store.head(layout.snapshot("none"))
                        failed.append(f"{team}/{job}: {error}")
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        if failed:
            raise PlatformError(
                f"{len(failed)} of {len(folders)} submissions have no answer: {'; '.join(failed)}"
            )
        return outcomes

    def _answer(self, store: Store, team: str, job: str) -> dict[str, Any]:
        """Admit a submission; after some tries, a fault of DMLS or of the platform is the answer."""
        for attempt in range(1, TRIES + 1):
            try:
                return self._admit(store, team, job)
            except Exception as error:
                store.head(layout.snapshot("none"))  # raises if the store itself is down
                self.log.exception("cannot check %s, try %s of %s", visible(f"{team}/{job}"), attempt, TRIES)
                failure = error
            if attempt < TRIES:
                time.sleep(PAUSE)
        outcome = report_failure(store, team, job, failure)
        return {"team": team, "job": job, "state": outcome.state, "message": outcome.message}

    def _admit(self, store: Store, team: str, job: str) -> dict[str, Any]:
        links = (
            {"airflow": f"{airflow_url()}/dags/{layout.dag_id(team, job)}"}
            if layout.is_name(team) and layout.is_name(job)
            else {}
        )
        settings = airflow_settings()
        outcome = admit(
            store,
            team,
            job,
            links=links,
            memory=settings.memory,
            gpus=settings.gpus,
            check_connections=_check_connections,
        )
        self.log.info("%s", visible(f"{team}/{job}: {outcome.state}: {outcome.message}"))
        if outcome.state == "rejected" and not outcome.unchanged:
            notify(_owner(store, team, job), "rejected", f"{team}/{job}", outcome.message, links)
        return {"team": team, "job": job, "state": outcome.state, "message": outcome.message}


def checks_at_once() -> int:
    """Return how many submissions a run checks at a time: all runs together take half of the memory."""
    readers = available_memory() // 2 // LIMITS.memory
    return max(1, min(CHECKS, readers // _RUNS))


def _check_connections(team: str, spec: Spec) -> Findings:
    findings = Findings()
    if spec.data.source:
        # Imported here: the DAG is parsed often, and few specs name a source.
        from dmls_core.airflow.sources.data_source import check_source

        findings = check_source(team, spec)
    return replace(findings, notes=(*findings.notes, *describe_refused(team, spec.owner.notify)))


def _owner(store: Store, team: str, job: str) -> dict[str, Any]:
    """Return ``[owner]`` of the job's accepted version, or of the rejected spec if there is none."""
    # Imported here: the DAG is parsed often, and rejections are few.
    from dmls_core.settings import SpecLimits
    from dmls_core.spec.parse import read_owner

    registry = Registry(store)
    record = registry.job(team, job) if layout.is_name(team) and layout.is_name(job) else None
    if record:
        accepted: dict[str, Any] = registry.spec(record.spec_sha256).get("owner", {})
        return accepted
    limits, key = SpecLimits.from_environment(), layout.incoming_file(team, job, layout.SPEC_FILE)
    try:
        content, _ = store.read(key, limit=limits.bytes + 1)
    except StoreError:  # there is no spec, or no store can hold its name
        return {}
    owner = read_owner(content, limits)
    return owner.model_dump() if owner else {}


def intake_dag() -> DAG:
    """Build the intake DAG. Its asset must be declared in one DAG file only, or events are lost."""
    watcher = AssetWatcher(name="dmls-incoming", trigger=submission_trigger())
    with DAG(
        _DAG_ID,
        schedule=[Asset(_SUBMISSIONS, watchers=[watcher])],
        start_date=pendulum.datetime(2026, 1, 1),
        catchup=False,
        max_active_runs=_RUNS,
        is_paused_upon_creation=False,
        tags={"dmls"},
        description="Admits the submissions in incoming/",
        default_args={"retries": 3, "retry_delay": pendulum.duration(seconds=5)},
    ) as dag:
        AdmitOperator(task_id="admit")
    return dag
