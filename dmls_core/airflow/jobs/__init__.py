"""A job's DAG: its tasks, timetables, priority, deadlines and approval."""
