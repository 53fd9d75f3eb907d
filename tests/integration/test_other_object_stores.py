"""``[data.source] path`` in Google Cloud Storage, Azure Blob Storage and HDFS.

Google's and Azure's run on emulators where these and Airflow's providers are installed:
``pip install apache-airflow-providers-google gcsfs gcp-storage-emulator`` and
``pip install apache-airflow-providers-microsoft-azure adlfs``, ``npm install -g azurite``.
HDFS is answered by a folder behind the three requests of WebHDFS that reading takes, as Apache's
documentation of its REST API describes them.
"""

from __future__ import annotations

import io
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

import polars as pl
import pytest
from airflow.sdk.io import store

from dmls_core.airflow.sources import connections
from dmls_core.errors import DataError, PlatformError
from dmls_core.store import open_store
from tests.integration.test_sources import WEEK, frame, read

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's published account, which every installation has."""

Put = Callable[[str, bytes], None]


class Hdfs(BaseHTTPRequestHandler):
    """Answers as a name node and a data node; ``server.folder`` has the files."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = self.server.folder / unquote(url.path).removeprefix("/webhdfs/v1").strip("/")
        if query.get("user.name") != "analyst" or "secret" in path.name:
            self.fail(403, "AccessControlException", "Permission denied")
        elif not path.exists():
            self.fail(404, "FileNotFoundException", f"File does not exist: {path.name}")
        elif query["op"] == "LISTSTATUS":
            found = sorted(path.iterdir()) if path.is_dir() else [path]
            self.answer({"FileStatuses": {"FileStatus": [self.status(file, file.name) for file in found]}})
        elif query["op"] == "GETFILESTATUS":
            self.answer({"FileStatus": self.status(path, "")})
        elif "datanode" not in query:
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}{self.path}&datanode=1")
            self.end_headers()
        else:
            start = int(query.get("offset", 0))
            self.send(200, path.read_bytes()[start : start + int(query.get("length", 1 << 30))])

    def status(self, path: Path, suffix: str) -> dict:
        about = path.stat()
        kind, size = ("DIRECTORY", 0) if path.is_dir() else ("FILE", about.st_size)
        modified = about.st_mtime_ns // 1_000_000
        return {"pathSuffix": suffix, "type": kind, "length": size, "modificationTime": modified}

    def answer(self, document: dict, status: int = 200) -> None:
        self.send(status, json.dumps(document).encode())

    def fail(self, status: int, name: str, message: str) -> None:
        self.answer({"RemoteException": {"exception": name, "message": message}}, status)

    def send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None: ...


@contextmanager
def hdfs(folder: Path) -> Iterator[tuple[str, dict, dict, Put]]:
    """Serve a folder as HDFS, behind the second of two name nodes."""

    def put(name: str, content: bytes) -> None:
        path = folder / "lake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Hdfs) as server:
        server.folder = folder
        threading.Thread(target=server.serve_forever, daemon=True).start()
        nodes = {"conn_type": "webhdfs", "host": "127.0.0.2,127.0.0.1", "port": server.server_port}
        try:
            yield "hdfs://cluster/lake", nodes | {"login": "analyst"}, nodes | {"login": "stranger"}, put
        finally:
            server.shutdown()


@contextmanager
def google(folder: Path) -> Iterator[tuple[str, dict, dict, Put]]:
    """Start the emulator of Google Cloud Storage."""
    need("gcp_storage_emulator", "gcsfs", "airflow.providers.google")
    from gcp_storage_emulator.server import create_server

    port = free_port()
    server = create_server("127.0.0.1", port, in_memory=True, default_bucket="lake")
    server.start()

    def put(name: str, content: bytes) -> None:
        address = f"http://127.0.0.1:{port}/upload/storage/v1/b/lake/o?uploadType=media&name={name}"
        with urlopen(Request(address, content, method="POST"), timeout=60) as answer:
            assert answer.status == 200

    extra = {"gcs.endpoint": f"http://127.0.0.1:{port}", "is_anonymous": True, "project": "dmls"}
    about = {"conn_type": "google_cloud_platform", "extra": extra}
    wrong = about | {"extra": {"keyfile_dict": KEY}}
    try:
        yield "gs://lake", about, wrong, put
    finally:
        server.stop()


@contextmanager
def azure(folder: Path) -> Iterator[tuple[str, dict, dict, Put]]:
    """Start Azurite."""
    need("adlfs", "airflow.providers.microsoft.azure")
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not on the PATH")
    from azure.storage.blob import BlobServiceClient

    port = free_port()
    options = ["--inMemoryPersistence", "--blobPort", str(port), "--skipApiVersionCheck", "--silent"]
    process = subprocess.Popen([program, *options, "--disableTelemetry"], cwd=folder)

    def about(key: str) -> dict:
        endpoint = f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT}"
        text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};{endpoint};"
        return {"conn_type": "wasb", "extra": {"connection_string": text}}

    try:
        end = time.monotonic() + 60
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.2)
        client = BlobServiceClient.from_connection_string(about(KEY)["extra"]["connection_string"])
        container = client.create_container("lake")

        def put(name: str, content: bytes) -> None:
            container.upload_blob(name, content, overwrite=True)

        yield "abfs://lake", about(KEY), about(KEY.replace("Eby8", "Xby8")), put
    finally:
        process.terminate()
        process.wait(timeout=30)


def need(*modules: str) -> None:
    for module in modules:
        try:
            missing = find_spec(module) is None
        except ModuleNotFoundError:
            missing = True
        if missing:
            pytest.skip(f"{module} is not installed")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(params=[hdfs, google, azure], ids=lambda service: service.__name__)
def lake(request: pytest.FixtureRequest, tmp_path, monkeypatch) -> Iterator[SimpleNamespace]:
    names = {name: ["lab"] for name in ("lake", "wrong")}
    monkeypatch.setattr(connections, "airflow_settings", lambda: SimpleNamespace(connections=names))
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # the emulator has no such buckets
    monkeypatch.setattr(store, "_STORE_CACHE", {})  # Airflow keeps what a connection opened
    folder = tmp_path / "service"
    folder.mkdir()
    with request.param(folder) as (root, about, wrong, put):
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(about))
        monkeypatch.setenv("AIRFLOW_CONN_WRONG", json.dumps(wrong))
        yield SimpleNamespace(root=root, put=put)


def parquet(start: int) -> bytes:
    buffer = io.BytesIO()
    frame(start).write_parquet(buffer)
    return buffer.getvalue()


def test_files_of_another_kind_of_store_are_read(lake, tmp_path):
    copies = open_store(str(tmp_path / "store"))
    for day in range(1, 15):
        lake.put(f"orders/dt=2026-01-{day:02d}/shop={day % 2 + 1}/part-0.parquet", parquet(day))
    lake.put("orders/_SUCCESS", b"-")
    whole = read(f'path = "{lake.root}/orders/"', "lake", 'drop = ["dt"]')
    assert whole.check().issues == ()
    first = whole.snapshot(copies, "orders", WEEK)
    found = pl.read_parquet(copies.get(first.data.key))
    assert found.columns == ["size", "paid", "dt", "shop"]
    assert (found.height, found["shop"].unique().sort().to_list()) == (14 * 40, [1, 2])
    assert whole.snapshot(copies, "orders", WEEK) == first
    lake.put("orders/dt=2026-01-01/shop=2/part-0.parquet", parquet(99))
    assert whole.snapshot(copies, "orders", WEEK) != first

    days = read(f'path = "{lake.root}/orders/dt={{date}}/*/*.parquet"', "lake", 'drop = ["dt"]')
    assert len(days.partitions()) == 14
    assert days.partitions()[4].start == WEEK[0]
    with pytest.raises(DataError, match="there are no files"):
        read(f'path = "{lake.root}/none/"', "lake").files()
    with pytest.raises(PlatformError, match="the Airflow connection wrong: ") as error:
        read(f'path = "{lake.root}/orders/"', "wrong").files()
    assert KEY[4:] not in str(error.value)


@pytest.mark.parametrize("lake", [hdfs], indirect=True, ids=["hdfs"])
def test_a_folder_that_may_not_be_read_is_not_left_out(lake):
    lake.put("orders/part-0.parquet", parquet(0))
    folder = read(f'path = "{lake.root}/orders/"', "lake")
    assert [file.key for file in folder.files()] == ["hdfs://cluster/lake/orders/part-0.parquet"]
    lake.put("orders/secret/part-1.parquet", parquet(0))
    with pytest.raises(PlatformError, match="the Airflow connection lake: .*Permission denied"):
        folder.files()
