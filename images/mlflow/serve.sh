#!/bin/sh
# MLflow's server, whose users are in its database too. Its configuration holds the database's password, so it is a
# file that only this user reads.
set -eu
umask 077
cat > /tmp/basic_auth.ini <<INI
[mlflow]
default_permission = NO_PERMISSIONS
database_uri = $MLFLOW_BACKEND_STORE_URI
auth_cache_ttl_seconds = 60
INI
export MLFLOW_AUTH_CONFIG_PATH=/tmp/basic_auth.ini
exec mlflow server --app-name basic-auth --host 0.0.0.0 --port 5000 --workers 2 \
    --artifacts-destination "$ARTIFACTS_DESTINATION"
