"""The tasks of a job's DAG except the search; each module is named after its task id."""
