"""The one Param of every job's DAG: what a user may change for one run, from Airflow's trigger form.

One object and not a Param for each hyperparameter: Airflow validates each many times over. The schema says
which keys there are; what they may hold is checked as a spec is, by the run's first task, whose messages can
say what would be right.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

SCHEMA: dict[str, Any] = {
    "type": ["object", "null"],
    "title": "For this run only",
    "additionalProperties": False,
    "properties": {
        "hyperparameters": {"type": "object"},
        "n_trials": {"type": "integer"},
        "seed": {"type": "integer"},
        "data": {"type": "object"},
        "deploy": {"type": "boolean"},
    },
}


def run_param() -> Param:
    """Return the Param; empty by default, so that a run is as its job says."""
    return Param(
        {},
        description='Such as {"n_trials": 50, "seed": 7, "data": {"window": 4}, "hyperparameters": '
        '{"max_depth": {"min": 2, "max": 9}}, "deploy": true}. Nothing of it changes the job.',
        **SCHEMA,
    )
