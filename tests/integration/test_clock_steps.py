"""Dates are corrected on PostgreSQL, but not while the scheduler computes the DAG's next run from them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from sqlalchemy import Engine, insert, select
from sqlalchemy.orm import Session

from dmls_core.airflow.operations.clock_steps import correct_dates
from tests.integration.test_history import NOW, database  # noqa: F401 - a fixture
from tests.support.airflow_database import add_dag

DAG = "dmls.clock.iris"


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_a_locked_dag_is_left_for_the_next_look(database: Engine) -> None:  # noqa: F811
    with Session(database) as session:
        add_dag(session, DAG)
        for days, state in ((0.5, "success"), (1, "running")):
            at = NOW + timedelta(days=days)
            values = {"run_type": "scheduled", "run_after": at, "logical_date": at, "state": state}
            session.execute(insert(DagRun).values(dag_id=DAG, run_id=f"day {days}", **values))
        session.commit()
    with Session(database) as scheduler, Session(database) as session:
        scheduler.execute(select(DagModel).where(DagModel.dag_id == DAG).with_for_update())
        assert correct_dates(session, NOW) == 0
        scheduler.rollback()
        assert correct_dates(session, NOW) == 2
        session.commit()
        query = select(DagRun.logical_date).where(DagRun.dag_id == DAG).order_by(DagRun.logical_date)
        assert session.scalars(query).all() == [NOW - timedelta(microseconds=1), NOW]
