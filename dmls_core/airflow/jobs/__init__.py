"""A job as its DAG knows it: its entry, the data of a run, its intervals, its engine."""
