"""What is told of jobs: answers beside the drop, messages, links on Airflow's pages, metrics."""
