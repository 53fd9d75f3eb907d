"""Greedy callers of the API server and of Triton: what each costs Airflow's health route, memory, and others.

It starts and ends its own Triton and its own Airflow with SQLite. Another caller predicts a row every 0.2 s.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.serving import Deployment
from tests.bench.report import Row, run
from tests.services.triton_server import TritonProcess, new_triton
from tests.support.api_server import ApiServer, api_server
from tests.support.trained_run import trained_run, user_rows

MODEL = "lab.parts"
ROWS = 100_000
MIB = 2**20
CSV = {"Content-Type": "text/csv"}
JSON = {"Content-Type": "application/json"}
ROW = b'[{"size": 1.5, "count": 3, "colour": "red"}]'


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Start the servers, and send each kind of greedy requests in turn."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names = [name for name in ATTACKS if arguments.only in name]
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch, triton_server(Path(scratch)) as triton:
        (folder := Path(scratch) / "airflow").mkdir()
        with api_server(folder, addresses(triton), "greedy", "other") as server:
            return [Watched(server, triton).while_sending(name) for name in names]


@contextmanager
def triton_server(folder: Path) -> Iterator[TritonProcess]:
    """Run Triton with the model lab.parts."""
    triton = new_triton(folder)
    triton.start()
    try:
        trained_run(folder / "run")
        with triton.client() as client:
            Deployment(triton.repository, client, MODEL).deploy(folder / "run" / "model")
        yield triton
    finally:
        triton.stop()


def addresses(triton: TritonProcess) -> dict[str, str]:
    """Return Triton's settings of the bundle."""
    return {
        "triton_http": triton.context.address("triton_http"),
        "triton_grpc": triton.context.address("triton_grpc"),
        "triton_repository": str(triton.context.model_repository),
    }


class Watched:
    """An API server and a Triton whose health, memory and other callers are watched."""

    def __init__(self, server: ApiServer, triton: TritonProcess) -> None:
        self.server, self.triton = server, triton
        self._stop = threading.Event()
        self._health: list[float] = []
        self._others: Counter[bool] = Counter()
        self._slowest = 0.0
        self._memory: dict[str, int] = {"API server": 0, "children": 0, "Triton": 0}
        watches = self._ask, self._predict, self._weigh
        self._threads = [threading.Thread(target=watch, daemon=True) for watch in watches]

    def while_sending(self, name: str) -> Row:
        """Send the requests of an attack, and return a row of the table."""
        for thread in self._threads:
            thread.start()
        started = time.monotonic()
        answers = asyncio.run(ATTACKS[name](self.server, self.triton))
        seconds = time.monotonic() - started
        time.sleep(1)
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return {
            "requests": name,
            "answers": ", ".join(f"{count} x {status}" for status, count in sorted(answers.items())),
            "seconds": seconds,
            "health, slowest s": max(self._health),
            "others answered": f"{self._others[True]} of {self._others.total()}",
            "others, slowest s": self._slowest,
            **{f"{part}, MiB": size // MIB for part, size in self._memory.items()},
        }

    def _ask(self) -> None:
        with httpx.Client(timeout=120) as client:
            while not self._stop.is_set():
                started = time.monotonic()
                client.get(self.server.health)
                self._health.append(time.monotonic() - started)
                self._stop.wait(0.1)

    def _predict(self) -> None:
        headers = {"Authorization": f"Bearer {self.server.keys['other']}"} | JSON
        with httpx.Client(timeout=120) as client:
            while not self._stop.is_set():
                started = time.monotonic()
                try:
                    answer = client.post(self.server.predictions, content=ROW, headers=headers)
                    self._others[answer.status_code == 200] += 1
                except httpx.HTTPError:
                    self._others[False] += 1
                self._slowest = max(self._slowest, time.monotonic() - started)
                self._stop.wait(0.2)

    def _weigh(self) -> None:
        server = psutil.Process(self.server.pid)
        while not self._stop.is_set():
            children = sum(_memory(child) for child in server.children(recursive=True))
            process = self.triton.process
            sizes = {
                "API server": _memory(server),
                "children": children,
                "Triton": _memory(psutil.Process(process.pid)) if process else 0,
            }
            for part, size in sizes.items():
                self._memory[part] = max(self._memory[part], size)
            self._stop.wait(0.1)


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


async def post(
    server: ApiServer, bodies: list[bytes], headers: dict[str, str], path: str = "", *, key: bool = True
) -> Counter[str]:
    """Post bodies at the same time, with the greedy caller's key, and count the answers."""
    authorization = {"Authorization": f"Bearer {server.keys['greedy']}"} if key else {}
    limits = httpx.Limits(max_connections=len(bodies))
    async with httpx.AsyncClient(timeout=180, limits=limits) as client:

        async def send(body: bytes) -> str:
            try:
                url = server.url + path if path else server.predictions
                return str(
                    (await client.post(url, content=body, headers=headers | authorization)).status_code
                )
            except httpx.HTTPError as error:
                return type(error).__name__

        return Counter(await asyncio.gather(*map(send, bodies)))


def table(rows: int) -> bytes:
    """Return rows of the model as CSV."""
    columns = user_rows(rows)
    lines = zip(*columns.values(), strict=True)
    return "\n".join(
        [",".join(columns), *(",".join("" if v is None else str(v) for v in line) for line in lines)]
    ).encode()


async def nothing(_: ApiServer, __: TritonProcess) -> Counter[str]:
    """Send nothing for 10 s: what the machine itself does to the others."""
    await asyncio.sleep(10)
    return Counter()


async def parallel_batches(server: ApiServer, _: TritonProcess) -> Counter[str]:
    """Send 16 batches at once."""
    return await post(server, [table(ROWS)] * 16, CSV)


async def small_batches(server: ApiServer, _: TritonProcess) -> Counter[str]:
    """Send 400 requests of 1,000 rows, as many at once."""
    return await post(server, [table(1_000)] * 400, CSV)


async def large_bodies(server: ApiServer, _: TritonProcess) -> Counter[str]:
    """Send 8 bodies of 32 MiB with as many cells as they can have."""
    row = b'{"size":1,"count":2,"colour":"red"' + b"".join(b',"c%d":1' % i for i in range(300)) + b"},"
    body = b"[" + row * (32 * MIB // len(row) - 1) + row[:-1] + b"]"
    return await post(server, [body] * 8, JSON)


async def many_columns(server: ApiServer, _: TritonProcess) -> Counter[str]:
    """Send 8 tables of a million columns."""
    names = ",".join(f"c{i}" for i in range(1_000_000))
    body = f"size,count,colour,{names}\n1,2,red{',1' * 1_000_000}\n".encode()
    return await post(server, [body] * 8, CSV)


async def packed_parquet(server: ApiServer, _: TritonProcess) -> Counter[str]:
    """Send 16 files of Parquet of a few kilobytes with 100,000 rows of long texts."""
    import polars as pl

    frame = pl.DataFrame({"size": [1.5] * ROWS, "count": [1] * ROWS, "colour": ["red" * 1_000] * ROWS})
    frame.write_parquet(target := io.BytesIO(), compression="zstd")
    return await post(server, [target.getvalue()] * 16, {"Content-Type": "application/vnd.apache.parquet"})


async def slow_bodies(server: ApiServer, _: TritonProcess) -> Counter[str]:
    """Open 200 connections that announce 32 MiB and send a byte a second."""
    return await _slowly(server, 200, 32 * MIB)


async def many_connections(server: ApiServer, _: TritonProcess) -> Counter[str]:
    """Open 1,000 connections that announce a small body and do not send it."""
    return await _slowly(server, 1_000, 1_000)


async def _slowly(server: ApiServer, connections: int, size: int) -> Counter[str]:
    url = httpx.URL(server.predictions)
    head = (
        f"POST {url.path} HTTP/1.1\r\nHost: {url.host}\r\nContent-Type: text/csv\r\n"
        f"Authorization: Bearer {server.keys['greedy']}\r\nContent-Length: {size}\r\n\r\n"
    )

    async def send() -> str:
        reader, writer = await asyncio.open_connection(url.host, url.port)
        try:
            writer.write(head.encode())
            answer = asyncio.ensure_future(reader.readline())
            for _ in range(60):
                done, _pending = await asyncio.wait([answer], timeout=1)
                if done:
                    return (await answer).decode().split()[1] if answer.result() else "closed"
                writer.write(b"a")
            return "none in 60 s"
        except ConnectionError:
            return "closed"
        finally:
            writer.close()

    return Counter(await asyncio.gather(*(send() for _ in range(connections))))


async def without_a_login(server: ApiServer, _: TritonProcess) -> Counter[str]:
    """Send 300 objects of JSON of 1 MiB to a route that needs a login, without one."""
    body = b'{"row": [' + b"{}," * (MIB // 3 - 10) + b"{}]}"
    path = "/dmls/api/v1/jobs/lab/parts/predict"
    headers = JSON | {"Authorization": "Bearer x"}
    return await post(server, [body] * 300, headers, path, key=False)


async def shape_bombs(_: ApiServer, triton: TritonProcess) -> Counter[str]:
    """Ask Triton for tensors that it would have to allocate: 6e7, 1e9 and 1e12 values."""
    url = f"http://{triton.context.address('triton_http')}/v2/models/{MODEL}/infer"
    answers: Counter[str] = Counter()
    async with httpx.AsyncClient(timeout=60) as client:
        for size in (60_000_000, 1_000_000_000, 10**12):
            inputs = {"name": "input__0", "datatype": "FP32", "shape": [size // 3, 3], "data": [1.5]}
            try:
                answer = await client.post(url, json={"inputs": [inputs]})
                answers[str(answer.status_code)] += 1
            except httpx.HTTPError as error:
                answers[type(error).__name__] += 1
                triton.stop()
                await asyncio.to_thread(triton.start)
    return answers


ATTACKS: dict[str, Callable[..., object]] = {
    "none": nothing,
    "16 parallel batches of 100,000 rows": parallel_batches,
    "400 parallel batches of 1,000 rows": small_batches,
    "8 bodies of 32 MiB with 300 columns": large_bodies,
    "8 tables of 1,000,000 columns": many_columns,
    "16 packed Parquet files": packed_parquet,
    "200 slow bodies": slow_bodies,
    "1,000 connections": many_connections,
    "300 bodies of 1 MiB without a login": without_a_login,
    "shape bombs to Triton": shape_bombs,
}

if __name__ == "__main__":
    run(__doc__, measure, ("--only", "", "part of the name of the requests to send"))
