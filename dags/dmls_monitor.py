"""The monitor DAG of DMLS: an Airflow DAG file with no logic of its own."""

from dmls_core.airflow.operations.monitor_dag import monitor_dag

dag = monitor_dag()
