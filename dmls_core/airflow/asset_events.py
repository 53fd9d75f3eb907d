"""What a watching trigger passes on to the run that it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context


def event_entries(context: Context, key: str) -> list[Any]:
    """Return the entries under ``key`` of the events of a watching trigger that started this run."""
    return [
        entry
        for events in (context.get("triggering_asset_events") or {}).values()
        for event in events
        for entry in (event.extra or {}).get("payload", event.extra or {}).get(key, [])
    ]
