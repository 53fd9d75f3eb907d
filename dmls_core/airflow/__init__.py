"""Everything that imports Airflow: the bundle, the DAG factory, operators, triggers, the plugin."""
