#!/bin/sh
# Prometheus, with the token that Airflow's API server asks for in a file: its configuration takes no variables.
set -eu
umask 077
printf %s "$METRICS_TOKEN" > /tmp/metrics-token
unset METRICS_TOKEN
exec prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus \
    --storage.tsdb.retention.time="${RETENTION:-30d}"
