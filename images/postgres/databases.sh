#!/bin/sh
# Run once by the PostgreSQL image, on an empty volume: a database and a user each for Airflow, MLflow and the
# studies that trainers share.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname postgres \
    --set airflow_password="$AIRFLOW_DB_PASSWORD" --set mlflow_password="$MLFLOW_DB_PASSWORD" \
    --set optuna_password="$OPTUNA_DB_PASSWORD" <<'SQL'
CREATE USER airflow PASSWORD :'airflow_password';
CREATE DATABASE airflow OWNER airflow;
CREATE USER mlflow PASSWORD :'mlflow_password';
CREATE DATABASE mlflow OWNER mlflow;
CREATE USER optuna PASSWORD :'optuna_password';
CREATE DATABASE optuna OWNER optuna;
SQL
