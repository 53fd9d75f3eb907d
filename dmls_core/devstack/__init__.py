"""The embedded platform: the real Airflow, S3, MLflow and Triton on one machine."""
