"""The embedded platform: Airflow, S3, MLflow and Triton, all real, on one machine."""
