"""The repair DAG of DMLS: an Airflow DAG file with no logic of its own."""

from dmls_core.airflow.operations.repair_dag import repair_dag

dag = repair_dag()
