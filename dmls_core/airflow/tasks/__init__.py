"""The tasks of a job's DAG other than the search itself."""
