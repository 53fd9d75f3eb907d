"""The order in which waiting trainers get slots."""

from __future__ import annotations

import json
from types import SimpleNamespace

from airflow.serialization.serialized_objects import DagSerialization

from dmls_core.airflow import job_dag
from dmls_core.airflow.bundle import shard_file
from dmls_core.airflow.priority import LEADER_WEIGHT, WORKER_WEIGHT, LeaderPriorityStrategy


def test_the_leader_of_every_run_goes_before_the_second_worker_of_any():
    weights = [
        LeaderPriorityStrategy().get_weight(SimpleNamespace(map_index=index)) for index in (-1, 0, 1, 5)
    ]
    assert weights == [LEADER_WEIGHT, LEADER_WEIGHT, WORKER_WEIGHT, WORKER_WEIGHT]
    assert LEADER_WEIGHT > WORKER_WEIGHT


def test_the_scheduler_reads_the_strategy_from_the_serialized_dag(job, bundle):
    job(2)
    made = bundle()
    made.initialize()
    dag = job_dag.load_shard(str(shard_file(made.path, "dmls.lab.iris", 4)))["dmls.lab.iris"]

    again = DagSerialization.from_dict(json.loads(json.dumps(DagSerialization.to_dict(dag))))

    assert isinstance(again.get_task("search").weight_rule, LeaderPriorityStrategy)
    assert again.get_task("evaluate").trigger_rule == "none_failed_min_one_success"
