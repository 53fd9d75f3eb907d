"""The files that the bundle gives Airflow to parse."""
