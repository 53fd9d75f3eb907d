"""All that imports Airflow: the bundle, DAGs, operators, runners, timetables, triggers and notifications."""

import sys

from dmls_core.airflow.former_names import FormerNames

sys.meta_path.append(FormerNames())
