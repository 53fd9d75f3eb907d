"""The wait for a partition: ends when a file of the interval comes, or when the time is over."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dmls_core.airflow.jobs.partition_trigger import PartitionTrigger
from dmls_core.store import open_store
from dmls_core.testing.stores import run_coroutine


@pytest.fixture
def trigger(root):
    def _trigger(deadline: datetime) -> PartitionTrigger:
        return PartitionTrigger(
            root=str(root),
            aws_conn_id="",
            folder="incoming/lab/job/",
            path="data/{date}/*.csv",
            timezone="UTC",
            start="2026-01-05T00:00:00+00:00",
            end="2026-01-12T00:00:00+00:00",
            deadline=deadline.isoformat(),
            poll_seconds=0.05,
        )

    return _trigger


def fire(trigger: PartitionTrigger, arrivals: list[str], root) -> list[object]:
    """Run the trigger while files arrive, one at each moment."""

    async def arrive() -> None:
        for name in arrivals:
            await asyncio.sleep(0.1)
            open_store(str(root)).put(f"incoming/lab/job/data/{name}", b"x")

    async def both() -> list[object]:
        arriving = asyncio.create_task(arrive())
        events = [event.payload async for event in trigger.run()]
        await arriving
        return events

    return run_coroutine(asyncio.wait_for(both(), timeout=60))


def test_it_fires_when_a_file_of_the_interval_comes(trigger, root) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    others = ["2026-01-04/a.csv", "2026-01-12/a.csv", "2026-01-06/a.parquet"]
    events = fire(trigger(later), [*others, "2026-01-06/a.csv"], root)
    assert events == [{"arrived": True}]
    assert open_store(str(root)).head("incoming/lab/job/data/2026-01-06/a.csv")


def test_it_gives_up_at_the_deadline(trigger, root) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    assert fire(trigger(soon), ["2026-01-12/a.csv"], root) == [{"arrived": False}]


def test_what_lies_there_counts_even_after_the_deadline(trigger, root) -> None:
    open_store(str(root)).put("incoming/lab/job/data/2026-01-05/a.csv", b"x")
    assert fire(trigger(datetime.now(UTC) - timedelta(days=1)), [], root) == [{"arrived": True}]


def test_an_outage_of_the_store_does_not_end_the_wait(trigger, root, outages) -> None:
    open_store(str(root)).put("incoming/lab/job/data/2026-01-05/a.csv", b"x")
    assert fire(trigger(datetime.now(UTC) + timedelta(hours=1)), [], root) == [{"arrived": True}]
    assert len(outages) == 3


def test_a_trigger_is_restored_from_what_it_serializes(trigger) -> None:
    made = trigger(datetime.now(UTC))
    path, arguments = made.serialize()
    assert path == "dmls_core.airflow.jobs.partition_trigger.PartitionTrigger"
    assert PartitionTrigger(**arguments).serialize() == made.serialize()
