"""A search with helpers, real trainers and a real study: another run gets a helper's slot while it runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from dmls_core.airflow.bundle.dag_files import job_json, write_dag_files
from dmls_core.airflow.runners import helper_trigger
from dmls_core.airflow.runners.process.runner import ProcessTrainerOperator, end_trainer, trainers_folder
from dmls_core.airflow.runners.trainer_trigger import TrainerTrigger
from dmls_core.airflow.settings import BUNDLE_CLASSPATH, AirflowSettings, airflow_settings
from dmls_core.airflow.shards import shard_file
from dmls_core.models import load_spec
from dmls_core.search.study import elastic
from dmls_core.store import Registry, Store, layout, open_store
from dmls_core.store.waiting_queue import enqueue, waiting_since
from dmls_core.testing.trainer_program import Launch, LogRecorder, Watch, wait_for
from tests.services.postgres_server import PostgresServer

SPEC = """model = "xgboost-classifier"
n_trials = {n_trials}
[columns]
target = "y"
[n_estimators]
value = 150
[learning_rate]
min = 0.001
max = 0.01
[search]
strategy = "random"
workers = "auto"
"""
ROWS = "x,y\n" + "".join(f"{number % 17},{'ab'[number % 3 > 0]}\n" for number in range(300))


@pytest.fixture
def store(tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A platform's store, on a machine that the operator and the triggers of this test share."""
    postgres.empty()
    settings = AirflowSettings(root=str(tmp_path / "root"), runner="process")
    entry = {"name": "dmls", "classpath": BUNDLE_CLASSPATH, "kwargs": settings.model_dump()}
    study = postgres.study_url.replace("postgresql+psycopg", "postgres")
    for name, value in [
        ("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([entry])),
        ("AIRFLOW_CONN_DMLS_STUDY", study),
        ("AIRFLOW_HOME", str(tmp_path)),
        ("OMP_NUM_THREADS", "1"),
    ]:
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(elastic, "NOTICE_SECONDS", 0.0)
    # A trial ends within a fraction of it, on a busy machine too.
    monkeypatch.setattr(helper_trigger, "LAST_TRIAL_SECONDS", 300.0)
    airflow_settings.cache_clear()
    yield open_store(settings.root)
    airflow_settings.cache_clear()
    for folder in trainers_folder().glob("*"):
        end_trainer(folder.name)


@pytest.fixture
def search(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Launch]:
    """Return a function that prepares the task of one trainer."""
    log = LogRecorder()
    monkeypatch.setattr(TrainerTrigger, "log", log)
    monkeypatch.setattr(ProcessTrainerOperator, "log", log)

    def _search(name: str, n_trials: int, worker: int = 0) -> Launch:
        data = store.put(f"incoming/lab/{name}/data.csv", ROWS.encode())
        spec = load_spec(SPEC.format(n_trials=n_trials).encode())
        record = Registry(store).accept(spec, "lab", name, [data], datetime.now(UTC))
        dag_id, folder = layout.dag_id("lab", name), tmp_path / name
        entry = {"record": record.as_json(), "spec": spec.as_json()}
        write_dag_files(folder, {dag_id: job_json(entry)}, {}, shards=1)
        task = SimpleNamespace(
            dag_id=dag_id, run_id="run", task_id="search", map_index=worker, try_number=1, max_tries=3
        )
        context: dict[str, Any] = {
            "dag": SimpleNamespace(dag_id=dag_id, fileloc=str(shard_file(folder, dag_id, 1))),
            "dag_run": SimpleNamespace(run_type="manual", conf={}),
            "run_id": "run",
            "task_instance": task,
            "ti": task,
        }
        task.xcom_pull = lambda **_: None
        operator = ProcessTrainerOperator(task_id="search", plan={"worker": worker, "engine": "cpu"})
        return Launch(operator, context, log, record)

    return _search


@pytest.mark.nightly(
    "suites of runners and `test_shared_search.py` prove the parts, with programs in place of trainers"
)
def test_a_run_that_waits_gets_the_slot_of_a_helper_which_comes_back(
    store: Store, search: Callable[..., Launch]
):
    first, helper, second = search("first", 150), search("first", 150, 1), search("second", 2)
    leading = Watch(first.start())
    helping = Watch(helper.start())

    def has_ended_a_trial(trigger: TrainerTrigger) -> bool:
        log = trainers_folder() / trigger.key / "log"
        return log.exists() and "  accuracy " in log.read_text()

    wait_for(lambda: has_ended_a_trial(leading.trigger) and has_ended_a_trial(helping.trigger))
    enqueue(store, "cpu", "lab", "second", second.record.run_key)
    helping.join(60)
    assert helping.event is not None
    assert leading.is_alive(), "the search goes on without its helper"

    assert second.run()["metric"] == "accuracy"
    assert waiting_since(store, "cpu") == {}
    with pytest.raises(TaskDeferred) as returned:
        helper.finish(helping.event)
    again = Watch(helper.restore(returned.value.trigger))
    for watch in (leading, again):
        watch.join(300)
        assert watch.event is not None
    assert first.finish(leading.event)["metric"] == "accuracy"
    assert helper.finish(again.event) == {"worker": 1}
    folder = first.run_file("trials/")
    numbers = [json.loads(store.get(info.key))["number"] for info in store.list(folder)]
    assert sorted(numbers) == list(range(150))
