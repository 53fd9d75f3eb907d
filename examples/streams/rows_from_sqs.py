"""Collect the rows of an SQS queue, and give each hour of them to a DMLS job as a partition.

An Airflow DAG file: copy it into a DAG bundle, and set the constants. Each message is one row, a JSON object.
A run starts when the queue has messages, and at five past each hour for the hour that has ended. The spec of
the job reads the partitions, and trains on each:

    [data]
    path = "data/{date}-{hour}-*.jsonl"
    [schedule]
    on = "data"

SQS may deliver a message twice; each row is published once as long as its copies arrive within the hour.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from airflow.providers.amazon.aws.triggers.sqs import SqsSensorTrigger
from airflow.sdk import Asset, AssetWatcher, dag, task
from airflow.timetables.assets import AssetOrTimeSchedule
from airflow.timetables.trigger import CronTriggerTimetable

if TYPE_CHECKING:
    from dmls_core.store import Store

QUEUE = "https://sqs.eu-central-1.amazonaws.com/000000000000/orders"
CONNECTION = "aws_default"  # of the queue; it needs sqs:ReceiveMessage and sqs:DeleteMessage
TEAM, JOB = "shop", "late-orders"
MOST_MESSAGES = 20_000  # of one run; the next run takes the rest

WAITING = f"streams/{TEAM}/{JOB}/"
INCOMING = f"incoming/{TEAM}/{JOB}/data/"


def receive(sqs: Any, queue: str, store: Store) -> int:
    """Move the messages of a queue into the store, and return their number.

    A message leaves the queue after its row is stored: a task that is killed loses none.
    """
    moved = 0
    while messages := list(islice(_messages(sqs, queue), 500)):
        messages.sort(key=_hour)
        for hour, group in groupby(messages, _hour):
            found = [(message["MessageId"], message["Body"]) for message in group]
            store.put(f"{WAITING}{hour}/{_digest(str(found))}.json", json.dumps(found).encode())
        for start in range(0, len(messages), 10):
            entries = [
                {"Id": message["MessageId"], "ReceiptHandle": message["ReceiptHandle"]}
                for message in messages[start : start + 10]
            ]
            sqs.delete_message_batch(QueueUrl=queue, Entries=entries)
        moved += len(messages)
        if moved >= MOST_MESSAGES:
            break
    return moved


def publish(store: Store, now: datetime) -> list[str]:
    """Write each hour that has ended as a file of the job, and return the keys.

    The name depends on what the file is made of: a repeated task writes the same file again.
    """
    written = []
    keys = sorted(info.key for info in store.list(WAITING))
    for hour, group in groupby(keys, lambda key: key.split("/")[-2]):
        parts = list(group)
        if hour >= f"{now.astimezone(UTC):%Y-%m-%d-%H}":
            continue
        messages = dict(message for key in parts for message in json.loads(store.get(key)))
        rows = [body for identifier, body in messages.items() if _is_row(identifier, body)]
        if rows:
            written.append(f"{INCOMING}{hour}-{_digest(str(parts))}.jsonl")
            lines = (json.dumps(json.loads(row)) for row in rows)
            store.put(written[-1], "".join(f"{line}\n" for line in lines).encode())
        for key in parts:
            store.delete(key)
    return written


def _messages(sqs: Any, queue: str) -> Iterator[dict[str, Any]]:
    """Yield messages until the queue is empty; others do not see them for five minutes."""
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=300, AttributeNames=["SentTimestamp"]
        )
        if not answer.get("Messages"):
            return
        yield from answer["Messages"]


def _hour(message: dict[str, Any]) -> str:
    sent = datetime.fromtimestamp(int(message["Attributes"]["SentTimestamp"]) / 1000, UTC)
    return f"{sent:%Y-%m-%d-%H}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _is_row(identifier: str, body: str) -> bool:
    """Say whether a message is a JSON object; the log keeps those that are none."""
    try:
        if isinstance(json.loads(body), dict):
            return True
    except ValueError:
        pass
    logging.getLogger(__name__).warning("message %s is not a JSON object: %.200s", identifier, body)
    return False


# The watcher looks, the task takes: what a triggerer takes would be lost if it ended before the run began.
rows = Asset(
    f"dmls-rows-{TEAM}-{JOB}",
    watchers=[
        AssetWatcher(
            name="queue",
            trigger=SqsSensorTrigger(
                sqs_queue=QUEUE,
                aws_conn_id=CONNECTION,
                delete_message_on_reception=False,
                visibility_timeout=0,
                waiter_delay=30,
            ),
        )
    ],
)


@dag(
    dag_id=f"dmls_rows_{TEAM}_{JOB}",
    schedule=AssetOrTimeSchedule(timetable=CronTriggerTimetable("5 * * * *", timezone="UTC"), assets=rows),
    max_active_runs=1,
    catchup=False,
    tags=["dmls"],
)
def rows_from_sqs() -> None:
    """Collect rows, then publish the hours that have ended."""

    @task(retries=3)
    def collect() -> int:
        from airflow.providers.amazon.aws.hooks.sqs import SqsHook

        from dmls_core.airflow.settings import airflow_settings, open_root

        return receive(SqsHook(aws_conn_id=CONNECTION).conn, QUEUE, open_root(airflow_settings()))

    @task(retries=3)
    def publish_ended_hours() -> list[str]:
        from dmls_core.airflow.settings import airflow_settings, open_root

        return publish(open_root(airflow_settings()), datetime.now(UTC))

    collect() >> publish_ended_hours()


rows_from_sqs()
