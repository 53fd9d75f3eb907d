#!/bin/sh
# Write the password file of Airflow's simple user management from a variable, then run the command.
set -eu
if [ -n "${DMLS_AIRFLOW_PASSWORD:-}" ]; then
    umask 077
    python - <<'PYTHON'
import json, os, pathlib

file = pathlib.Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
file.write_text(json.dumps({"admin": os.environ["DMLS_AIRFLOW_PASSWORD"]}))
PYTHON
fi
exec "$@"
