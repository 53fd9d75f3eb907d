"""Greedy callers of the REST API and of Triton, on real servers: others get answers."""

from __future__ import annotations

import asyncio
import io
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import psutil
import pytest

from dmls_core.devstack.triton import MEMORY_SHARE, THREAD_STACK
from dmls_core.hardware import available_memory
from dmls_core.serving import Deployment
from dmls_core.web.services.request_slots import SMALL
from tests.bench.greedy import CSV, MIB, MODEL, ROW, addresses, table
from tests.services.triton_server import TritonProcess
from tests.support.api_server import ApiServer, api_server
from tests.support.trained_run import trained_run

ROWS = 20_000
PARQUET = {"Content-Type": "application/vnd.apache.parquet"}


@pytest.fixture(scope="module")
def server(triton: TritonProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    folder = tmp_path_factory.mktemp("airflow")
    trained_run(folder / "run")
    with triton.client() as client:
        Deployment(triton.repository, client, MODEL).deploy(folder / "run" / "model")
    with api_server(folder, addresses(triton), "greedy", "other") as server:
        yield server


def test_batches_in_parallel_leave_others_their_share(server: ApiServer):
    answers, others, health, grown = asyncio.run(while_batches_are_sent(server))
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert {len(answer.json()) for answer in answers} == {ROWS}
    assert {answer.status_code for answer in others} == {200}
    assert max(health) < 10  # of a busy machine; tests/bench/greedy.py measures it
    assert grown < 150 * MIB  # their rows are in children


async def while_batches_are_sent(server: ApiServer) -> tuple[list[Any], list[Any], list[float], int]:
    """Return the answers to 4 batches, those to another caller, seconds of the health route, and memory."""
    others, health = [], []
    url, keys = server.predictions, {name: f"Bearer {key}" for name, key in server.keys.items()}
    process = psutil.Process(server.pid)
    async with httpx.AsyncClient(timeout=120) as client:

        async def watch() -> None:
            while True:
                started = time.monotonic()
                await client.get(server.health)
                health.append(time.monotonic() - started)
                headers = {"Authorization": keys["other"], "Content-Type": "application/json"}
                others.append(await client.post(url, content=ROW, headers=headers))
                await asyncio.sleep(0.2)

        await client.post(url, content=ROW, headers=CSV | {"Authorization": keys["other"]})  # imports
        before = process.memory_info().rss
        watching = asyncio.create_task(watch())
        headers = CSV | {"Authorization": keys["greedy"]}
        batches = [client.post(url, content=table(ROWS), headers=headers) for _ in range(4)]
        answers = await asyncio.gather(*batches)
        watching.cancel()
        return answers, others, health, process.memory_info().rss - before


def test_rows_of_any_size_are_predicted_alike(server: ApiServer):
    """A small body is read in a thread, a larger one and Parquet in a child."""
    rows = pl.read_csv(small := table(1_000))
    rows.write_parquet(packed := io.BytesIO())
    assert len(small) < SMALL < len(wide(small))
    bodies = [(small, CSV), (packed.getvalue(), PARQUET), (wide(small), CSV)]
    headers = {"Authorization": f"Bearer {server.keys['other']}"}
    answers = [httpx.post(server.predictions, content=b, headers=h | headers) for b, h in bodies]
    assert [answer.status_code for answer in answers] == [200] * 3, answers[-1].text[:300]
    plain, parquet, large = ([dict(row, notes=0) for row in answer.json()] for answer in answers)
    assert plain == parquet == large
    assert answers[2].headers["DMLS-Notes"].endswith("ignored-column=1")


def wide(content: bytes) -> bytes:
    """Add a column of long texts."""
    header, *lines = content.splitlines()
    return b"\n".join([header + b",more", *(line + b"," + b"x" * 100 for line in lines)])


def test_what_is_wrong_with_a_large_body_is_said_as_of_a_small_one(server: ApiServer):
    headers = {"Authorization": f"Bearer {server.keys['greedy']}"}
    wrong = table(ROWS).replace(b",red", b",red,1", 1)
    answer = httpx.post(server.predictions, content=wrong, headers=CSV | headers)
    line = 1 + next(at for at, row in enumerate(wrong.splitlines()) if b",red,1" in row)
    assert (answer.status_code, answer.json()["detail"].partition(" record")[0]) == (422, f"{line}: the")


def test_a_shape_ends_triton_and_no_other_process(triton: TritonProcess, server: ApiServer):
    """The stand-in's server allocates what a shape says; it may not allocate the machine's memory."""
    assert triton.process is not None
    limits = Path(f"/proc/{triton.process.pid}/limits").read_text()
    (limit,) = re.findall(r"Max data size +(\d+) ", limits)
    assert int(limit) == available_memory() // MEMORY_SHARE
    assert re.findall(r"Max stack size +(\d+) ", limits) == [str(THREAD_STACK)]
    tensor = {"name": "input__0", "datatype": "FP32", "shape": [int(limit) // 12, 3], "data": [1.5]}
    url = f"http://{triton.context.address('triton_http')}/v2/models/{MODEL}/infer"
    with pytest.raises(httpx.HTTPError):
        httpx.post(url, json={"inputs": [tensor]}, timeout=60)
    triton.process.wait(60)
    triton.stop()
    triton.start()
    headers = {"Authorization": f"Bearer {server.keys['other']}", "Content-Type": "application/json"}
    assert httpx.post(server.predictions, content=ROW, headers=headers, timeout=60).status_code == 200
