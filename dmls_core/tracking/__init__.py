"""MLflow: runs, their trials, models, the registry with its aliases, and the decision on the champion."""
