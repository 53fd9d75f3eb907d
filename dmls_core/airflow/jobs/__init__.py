"""A job's DAG: its tasks, timetables, inputs, deadlines and status."""
