"""The example for streams: rows of an SQS queue become partitions that ``on = "data"`` trains on."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from dmls_core.intake import find_partitions
from dmls_core.models import load_spec
from dmls_core.spec.partitions import parse_pattern
from dmls_core.store import Store, open_store

EXAMPLE = Path(__file__).parents[2] / "examples/streams/rows_from_sqs.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The DAG file, imported as Airflow imports it."""
    spec = importlib.util.spec_from_file_location("rows_from_sqs", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a real server that speaks SQS, from Airflow's connection to it."""
    from airflow.providers.amazon.aws.hooks.sqs import SqsHook

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    about = {"endpoint_url": f"http://{host}:{port}", "region_name": "eu-central-1"}
    login = {"conn_type": "aws", "login": "key", "password": "secret", "extra": about}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(login))
    yield SqsHook().conn
    server.stop()


@pytest.fixture
def queue(sqs: Any) -> str:
    return str(sqs.create_queue(QueueName="orders")["QueueUrl"])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def send(sqs: Any, queue: str, *bodies: str) -> None:
    for start in range(0, len(bodies), 10):
        entries = [{"Id": str(i), "MessageBody": body} for i, body in enumerate(bodies[start : start + 10])]
        sqs.send_message_batch(QueueUrl=queue, Entries=entries)


def waiting(sqs: Any, queue: str) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
    return sum(int(value) for value in found.values())


def published(store: Store, keys: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for key in keys for line in store.get(key).splitlines()]


def test_the_rows_of_an_hour_become_one_partition_once_it_has_ended(example, sqs, queue, store):
    rows = [{"id": number, "late": number % 2 == 0} for number in range(35)]
    send(sqs, queue, *map(json.dumps, rows))
    now = datetime.now(UTC)
    assert example.receive(sqs, queue, store) == 35
    assert waiting(sqs, queue) == 0
    assert example.publish(store, now - timedelta(hours=1)) == []

    keys = example.publish(store, now + timedelta(hours=1))
    found = published(store, keys)
    assert sorted(found, key=lambda row: row["id"]) == rows
    assert list(store.list(example.WAITING)) == []

    # The job's spec of the example finds the partition, and its hour.
    spec = load_spec(
        b'model = "random-forest-classifier"\n[columns]\ntarget = "late"\n[data]\n'
        b'path = "data/{date}-{hour}-*.jsonl"\n[schedule]\non = "data"\n'
    )
    folder = f"incoming/{example.TEAM}/{example.JOB}/"
    partitions = find_partitions(store.list(folder), folder, parse_pattern(spec.data.path), "UTC")
    assert {part.start for part in partitions} <= {
        hour.replace(minute=0, second=0, microsecond=0) for hour in (now, now + timedelta(hours=1))
    }
    assert [part.file.key for part in partitions] == keys


def test_a_repeated_publication_and_a_message_that_comes_twice_change_nothing(example, sqs, queue, store):
    send(sqs, queue, '{"id": 1}')
    (message,) = sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0, AttributeNames=["SentTimestamp"])[
        "Messages"
    ]
    # A task that was killed between storing rows and deleting messages has left this.
    hour = example._hour(message)
    left = json.dumps([(message["MessageId"], message["Body"]), ("other", '{"id": 2}')]).encode()
    store.put(f"{example.WAITING}{hour}/0.json", left)
    assert example.receive(sqs, queue, store) == 1
    parts = {info.key: store.get(info.key) for info in store.list(example.WAITING)}
    assert len(parts) == 2

    later = datetime.now(UTC) + timedelta(hours=1)
    (key,) = example.publish(store, later)
    assert sorted(row["id"] for row in published(store, [key])) == [1, 2]
    content = store.get(key)
    for part, data in parts.items():  # killed before it had deleted the parts
        store.put(part, data)
    assert example.publish(store, later) == [key]
    assert store.get(key) == content


def test_what_is_no_row_is_logged_and_left_out(example, sqs, queue, store, caplog):
    send(sqs, queue, "not JSON", "[1, 2]", '{"id": 1}')
    example.receive(sqs, queue, store)
    keys = example.publish(store, datetime.now(UTC) + timedelta(hours=1))
    assert published(store, keys) == [{"id": 1}]
    assert "not JSON" in caplog.text
    assert "[1, 2]" in caplog.text


def test_a_message_starts_a_run_and_stays_until_the_task_takes_it(example, sqs, queue, store):
    (watcher,) = example.rows.watchers
    arguments = watcher.trigger.serialize()[1]
    trigger = type(watcher.trigger)(**arguments | {"sqs_queue": queue})
    send(sqs, queue, '{"id": 1}')

    async def first() -> Any:
        return await anext(aiter(trigger.run()))

    event = asyncio.run(asyncio.wait_for(first(), 60))
    assert event.payload["message_batch"][0]["Body"] == '{"id": 1}'
    assert example.receive(sqs, queue, store) == 1
