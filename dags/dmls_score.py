"""The scoring DAG of DMLS: an Airflow DAG file with no logic of its own."""

from dmls_core.airflow.operations.score_dag import score_dag

dag = score_dag()
