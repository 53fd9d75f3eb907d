"""Names that Airflow stores in its database, in configurations and in DAG files: docs/decisions/0003."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.serialization.decoders import decode_timetable
from airflow.serialization.encoders import encode_timetable
from airflow.task.priority_strategy import validate_and_load_priority_weight_strategy

from dmls_core.airflow.intake.submission_trigger import SubmissionTrigger
from dmls_core.airflow.jobs.partition_trigger import PartitionTrigger
from dmls_core.airflow.jobs.priority import LeaderPriorityStrategy
from dmls_core.airflow.jobs.timetables import IntervalTimetable, SubmissionTimetable
from dmls_core.airflow.operations.interruption_trigger import InterruptionTrigger
from dmls_core.airflow.operations.scoring_trigger import ScoringTrigger
from dmls_core.airflow.runners.gpu_trigger import GpuTrigger
from dmls_core.airflow.runners.helper_trigger import HelperTrigger
from dmls_core.airflow.runners.trainer_operator import TrainerOperator
from dmls_core.airflow.runners.trainer_trigger import TrainerTrigger
from dmls_core.web.services.queue import ENDING, GPU_TRIGGER, JOIN_TRIGGER

RECORD = Path(__file__).parents[3] / "docs/decisions/0003-class-paths-that-airflow-stores.md"
PATHS = re.findall(r"`([a-z_.]+\.\w+)`(?=[^|\n]*\|[^|\n]*\|$)", RECORD.read_text(), re.MULTILINE)

ARGUMENTS = {
    SubmissionTimetable: ["admitted", "version", "run_key"],
    IntervalTimetable: [
        *("admitted", "version", "run_key"),
        *("cron", "timezone", "scheduled", "catchup", "delay"),
    ],
    SubmissionTrigger: ["root", "aws_conn_id", "poll_seconds"],
    InterruptionTrigger: ["url", "aws_conn_id", "poll_seconds"],
    ScoringTrigger: ["root", "aws_conn_id", "poll_seconds"],
    GpuTrigger: ["memory", "since", "reason", "status"],
    TrainerTrigger: ["key", "folder", "worker", "status"],
    HelperTrigger: ["key", "folder", "worker", "engine", "since"],
    PartitionTrigger: [
        *("root", "aws_conn_id", "folder", "path", "timezone"),
        *("start", "end", "deadline", "poll_seconds"),
    ],
}


def test_the_record_lists_paths():
    assert len(PATHS) >= 11


@pytest.mark.parametrize("path", PATHS)
def test_the_path_exists(path):
    assert callable(resolve_name(f"dmls_core.airflow.{path}"))


FORMER_PATHS = {
    "deadlines.notify_missed_deadline": "jobs.deadlines.notify_missed_deadline",
    "intake_dag.intake_dag": "intake.intake_dag.intake_dag",
    "job_dag.load_shard": "jobs.job_dag.load_shard",
    "monitor_dag.monitor_dag": "operations.monitor_dag.monitor_dag",
    "priority.LeaderPriorityStrategy": "jobs.priority.LeaderPriorityStrategy",
    "repair_dag.repair_dag": "operations.repair_dag.repair_dag",
    "score_dag.score_dag": "operations.score_dag.score_dag",
    "timetables.IntervalTimetable": "jobs.timetables.IntervalTimetable",
    "timetables.SubmissionTimetable": "jobs.timetables.SubmissionTimetable",
    "triggers.InterruptionTrigger": "operations.interruption_trigger.InterruptionTrigger",
    "triggers.PartitionTrigger": "jobs.partition_trigger.PartitionTrigger",
    "triggers.ScoringTrigger": "operations.scoring_trigger.ScoringTrigger",
    "triggers.SubmissionTrigger": "intake.submission_trigger.SubmissionTrigger",
}


@pytest.mark.parametrize("former", FORMER_PATHS)
def test_a_platform_that_is_upgraded_finds_what_it_stored_by_its_former_path(former):
    name, _, attribute = former.partition(".")
    found = getattr(import_module(f"dmls_core.airflow.{name}"), attribute)
    assert found is resolve_name(f"dmls_core.airflow.{FORMER_PATHS[former]}")


@pytest.mark.parametrize(
    ("former", "arguments", "present"),
    [
        ("SubmissionTimetable", ("2026-03-04T05:06:07+00:00", 1, "key"), SubmissionTimetable),
        (
            "IntervalTimetable",
            ("2026-03-04T05:06:07+00:00", 1, "key", "@daily", "UTC", True, False, 0),
            IntervalTimetable,
        ),
    ],
)
def test_a_run_that_began_before_an_upgrade_keeps_its_timetable(former, arguments, present):
    values = dict(zip(ARGUMENTS[present], arguments, strict=True))
    stored = {"__type": f"dmls_core.airflow.timetables.{former}", "__var": values}
    restored = decode_timetable(stored)
    assert isinstance(restored, present)
    assert restored.serialize() == values
    assert encode_timetable(restored) == stored


def test_a_run_that_began_before_an_upgrade_keeps_its_priority():
    former = "dmls_core.airflow.priority.LeaderPriorityStrategy"
    assert isinstance(validate_and_load_priority_weight_strategy(former), LeaderPriorityStrategy)


@pytest.mark.parametrize("stored", ARGUMENTS, ids=lambda stored: stored.__name__)
def test_what_an_earlier_release_serialized_can_be_restored(stored):
    parameters = inspect.signature(stored).parameters
    assert list(parameters)[: len(ARGUMENTS[stored])] == ARGUMENTS[stored]
    added = list(parameters.values())[len(ARGUMENTS[stored]) :]
    assert all(parameter.default is not parameter.empty for parameter in added)


def test_the_page_knows_the_trigger_of_tasks_that_wait_for_a_gpu():
    assert resolve_name(GPU_TRIGGER) is GpuTrigger
    assert TimeDeltaTrigger(timedelta(1)).serialize()[0] == JOIN_TRIGGER
    assert TrainerOperator.finish.__name__ == ENDING
