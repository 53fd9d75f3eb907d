"""How often and when Airflow runs a failed task again."""

from __future__ import annotations

from typing import Any

import pendulum

RETRY: dict[str, Any] = {
    "retries": 8,
    "retry_delay": pendulum.duration(seconds=5),
    "retry_exponential_backoff": 2,
    "max_retry_delay": pendulum.duration(minutes=5),
}
"""Tries for a quarter of an hour or more, which outlasts the restart of any service on a busy machine."""
