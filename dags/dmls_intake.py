"""The intake DAG of DMLS: an Airflow DAG file with no logic of its own."""

from dmls_core.airflow.intake.intake_dag import intake_dag

dag = intake_dag()
