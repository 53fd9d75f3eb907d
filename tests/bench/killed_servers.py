"""One of two Triton servers killed at random behind the documented nginx: how many requests fail.

Starts and ends its own servers, and the nginx of docs/how-to/deploy.md. Clients ask the table endpoint all
the time. Over gRPC, of which nginx keeps no request that it has forwarded, they repeat a failed request once.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Self

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.data.encoder import Encoder
from dmls_core.serving import Deployment, Repository, TritonClient
from dmls_core.serving.deployment.verification import table_tensors
from dmls_core.serving.triton.model_config import table_name
from tests.bench.report import Row, run
from tests.services.nginx_server import nginx
from tests.services.triton_server import TritonProcess, new_triton
from tests.support.trained_run import trained_run, user_rows

NAME = "bench.twice"
PAGE = Path(__file__).parents[2] / "docs/how-to/deploy.md"
CLIENTS = 4
SHOWN = 5
"""Different errors that are printed."""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Serve a model by two servers, kill one after the other at random, and count what clients get."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as scratch:
        folder = Path(scratch)
        (folder / "models").mkdir()
        servers: list[TritonProcess] = []
        try:
            for name in ("first", "second"):
                (folder / name).mkdir()
                servers.append(new_triton(folder / name, repository=str(folder / "models")))
                servers[-1].start()
            return kill_servers(servers, folder, arguments)
        finally:
            for server in servers:
                server.stop()


def kill_servers(servers: list[TritonProcess], folder: Path, arguments: argparse.Namespace) -> list[Row]:
    """Deploy a model, and ask it through nginx while servers are killed and started again."""
    trained_run(folder / "run")
    repository = Repository(str(folder / "models"))
    with servers[0].client(timeout=60.0) as first, servers[1].client(timeout=60.0) as second:
        version = Deployment(repository, [first, second], NAME).deploy(folder / "run" / "model").version
        places = {
            f"triton-{number}:{port}": client.addresses[protocol]
            for number, client in enumerate((first, second))
            for protocol, port in (("http", 8000), ("grpc", 8001))
        }
    encoder = Encoder.from_json(repository.read(NAME, version, "encoder.json"))
    (config,) = re.findall(r"```nginx\n([^`]*max_fails[^`]*)```", PAGE.read_text())
    draw = random.Random(arguments.seed)
    (folder / "nginx").mkdir()
    with (
        nginx(config, places, folder / "nginx") as at,
        Asking(at[8000], at[8001], table_tensors(encoder, user_rows(3)), version) as asking,
    ):
        for _ in range(arguments.kills):
            time.sleep(draw.uniform(0.5, 4))
            killed = draw.choice(servers)
            killed.stop(signal.SIGKILL)
            time.sleep(draw.uniform(0, 4))
            killed.start()
        time.sleep(2)
    for error, count in asking.errors.most_common(SHOWN):
        print(f"{count} x {error}")
    return [
        {"protocol": name, "kills": arguments.kills, **{what: asking.counts[name, what] for what in COUNTED}}
        for name in ("http", "grpc")
    ]


COUNTED = ("answered", "repeated", "failed", "wrong")


class Asking:
    """Clients that ask until the block ends."""

    def __init__(self, http: str, grpc: str, columns: dict, version: int) -> None:
        self._addresses, self._columns, self._version = (http, grpc), columns, version
        self._ended = threading.Event()
        protocols = ["http", "grpc"] * (CLIENTS // 2)
        self._threads = [threading.Thread(target=self._ask, args=[protocol]) for protocol in protocols]
        self._lock = threading.Lock()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.errors: Counter[str] = Counter()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, protocol: str) -> None:
        with TritonClient(*self._addresses, timeout=60.0) as client:
            while not self._ended.is_set():
                found = self._ask_once(client, protocol)
                if found == "failed" and protocol == "grpc":
                    self._count(protocol, "repeated")
                    found = self._ask_once(client, protocol)
                self._count(protocol, found)

    def _ask_once(self, client: TritonClient, protocol: str) -> str:
        try:
            got = client.infer_tensors(table_name(NAME), self._columns, protocol=protocol)
        except Exception as error:  # noqa: BLE001  a client must not end without a word
            with self._lock:
                self.errors[f"{protocol}: {error}"[:200]] += 1
            return "failed"
        return "answered" if set(got.as_numpy("version").ravel()) == {self._version} else "wrong"

    def _count(self, protocol: str, what: str) -> None:
        with self._lock:
            self.counts[protocol, what] += 1


if __name__ == "__main__":
    run(__doc__, measure, ("--kills", 8, "how often a server is killed"), ("--seed", 0, "of the kills"))
