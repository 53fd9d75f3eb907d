"""The scoring DAG: predicts the rows of files in ``scoring/``, and of tables that such files name."""

from __future__ import annotations

from functools import partial
from typing import Any

import pendulum
from airflow.sdk import DAG, Asset, AssetWatcher, BaseOperator, Context, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dmls_core.airflow.asset_events import event_entries
from dmls_core.airflow.operations.scoring_trigger import scoring_trigger
from dmls_core.airflow.retry import RETRY
from dmls_core.airflow.settings import airflow_settings, open_repository, open_root
from dmls_core.errors import PlatformError, UserError
from dmls_core.store import Registry, Store, layout
from dmls_core.visible_text import visible

DAG_ID = "dmls.score"
FILES = "dmls-scoring"
"""Name of the asset whose watcher starts the scoring."""

MAX_TASKS = 500
"""Tasks of one run; with more files, each task scores several."""

ScoredFile = tuple[str, str, str]
"""Team, job, and the file's name below the job's folder."""


class FindOperator(BaseOperator):
    """Find the files to score: new content of the triggering events, or what a user's parameters name."""

    template_fields = ()

    def execute(self, context: Context) -> list[list[ScoredFile]]:
        """Return the files of each task ``score``."""
        from dmls_core.serving.predict.batch_scoring import find_unscored, list_files

        store, job = open_root(airflow_settings()), context["params"]["job"]
        try:
            if job:
                team, _, name = job.partition("/")
                files = context["params"]["files"] or list_files(store, team, name)
                waiting = [(team, name, file) for file in files]
            else:
                changed = {(team, name, file) for team, name, file in event_entries(context, "changed")}
                waiting = find_unscored(store, sorted(changed))
        except UserError as error:
            raise AirflowFailException(str(error)) from error
        if not waiting:
            raise AirflowSkipException("there is nothing to score")
        return [waiting[start::MAX_TASKS] for start in range(min(MAX_TASKS, len(waiting)))]


class ScoreOperator(BaseOperator):
    """Score files with the served versions of their jobs; a failing file does not stop the others."""

    template_fields = ()

    def __init__(self, *, files: list[ScoredFile], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.files = files

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Return file, version, rows and result of each file; fail with the errors of those that failed.

        The task is retried if a service failed, or DMLS itself.
        """
        names = visible(", ".join(f"{team}/{job}/{file}" for team, job, file in self.files)[:200])
        context["files"] = names  # type: ignore[typeddict-unknown-key]
        store, done, wrong, again = open_root(airflow_settings()), [], [], []
        for team, job, file in self.files:
            try:
                done.append(self._score(store, team, job, file))
            except UserError as error:
                self.log.error("%s", visible(f"{team}/{job}: {error}"))
                wrong.append(f"{team}/{job}: {error}")
            except Exception as error:
                self.log.exception("%s cannot be scored now", visible(f"{team}/{job}: {file}"))
                again.append(f"{team}/{job}/{file}: {error}")
        if again:  # a retry leaves out what has been scored
            raise PlatformError("; ".join([*again, *wrong]))
        if wrong:
            raise AirflowFailException("; ".join(wrong))
        return done

    def _score(self, store: Store, team: str, job: str, file: str) -> dict[str, Any]:
        from dmls_core.airflow.sources.database_tables import read_table
        from dmls_core.serving import Predictor, triton_servers
        from dmls_core.serving.predict.batch_scoring import FileScoring
        from dmls_core.serving.triton.placement import select_servers

        settings, registry = airflow_settings(), Registry(store)
        record = registry.job(team, job)
        options = registry.spec(record.spec_sha256).get("data", {}) if record else {}
        with triton_servers(settings.triton_http, settings.triton_grpc) as servers:
            model = layout.model_name(team, job)
            connect = partial(Predictor, open_repository(settings), select_servers(servers, model)[0], model)
            scoring = FileScoring(store, connect, team, job, file, options)
            outcome = scoring.run(partial(read_table, team), self.log.info)
        return {"file": file, "version": outcome.version, "rows": outcome.rows, "result": outcome.result}


def score_dag() -> DAG:
    """Build the scoring DAG. Its asset must be declared in one DAG file only, or events are lost."""
    watcher = AssetWatcher(name=FILES, trigger=scoring_trigger())
    with DAG(
        DAG_ID,
        schedule=[Asset(FILES, watchers=[watcher])],
        start_date=pendulum.datetime(2026, 1, 1),
        catchup=False,
        is_paused_upon_creation=False,
        tags={"dmls"},
        description="Scores the files in scoring/ with the served models",
        # No later event names the files again.
        default_args=RETRY,
        params={
            "job": Param(
                "",
                type="string",
                pattern=f"^(|{layout.NAME_PATTERN}/{layout.NAME_PATTERN})$",
                description="`team/job`",
            ),
            "files": Param(
                [],
                type="array",
                items={"type": "string", "minLength": 1, "maxLength": 900},
                maxItems=10_000,
                description="Names below `scoring/team/job/`; empty: all files of the job",
            ),
        },
    ) as dag:
        files = FindOperator(task_id="find")
        ScoreOperator.partial(task_id="score", map_index_template="{{ files }}").expand(files=files.output)
    return dag
