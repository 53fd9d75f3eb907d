"""All that imports Airflow: the bundle, DAGs, operators, runners, timetables, triggers and notifications."""
