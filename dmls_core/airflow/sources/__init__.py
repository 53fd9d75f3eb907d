"""``[data.source]`` through Airflow connections: databases, object stores, lake tables and HDFS."""
