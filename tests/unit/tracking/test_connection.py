from __future__ import annotations

import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dmls_core.errors import PlatformError, TrackingError
from dmls_core.tracking.connection import connect, report_url, run_url
from dmls_core.tracking.registry import champion_of, find_champion
from tests.services.seaweed import free_ports


def test_pages_have_addresses():
    assert run_url("http://ml:5000/", "3", "abc") == "http://ml:5000/#/experiments/3/runs/abc"
    assert report_url("http://ml/#/runs/abc") == "http://ml/#/runs/abc/artifacts/report.html"


@pytest.mark.parametrize("uri", ["", "file:///tmp/mlruns", "sqlite:///x.db"])
def test_only_http_addresses_are_accepted(uri):
    with pytest.raises(PlatformError):
        connect(uri)


def test_the_error_names_a_server_that_is_down():
    (port,) = free_ports(1)
    with pytest.raises(TrackingError, match=f"does not answer at http://127.0.0.1:{port}: start it"):
        find_champion(f"http://127.0.0.1:{port}", "lab.iris")


def test_any_http_answer_means_that_the_server_is_up():
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(403)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            assert connect(f"http://127.0.0.1:{server.server_port}").tracking_uri.endswith(
                str(server.server_port)
            )
        finally:
            server.shutdown()


@pytest.mark.parametrize("ask", [connect, lambda uri: champion_of(uri, "lab.iris")])
def test_the_error_names_a_server_of_another_kind(ask):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            asked, _ = other.accept()
            with asked:
                asked.recv(1000)
                asked.sendall(b"what?\r\n\r\n")

        answering = threading.Thread(target=answer, daemon=True)
        answering.start()
        uri = f"http://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(TrackingError, match=f"does not answer at {uri}"):
            ask(uri)
        answering.join()


def test_nothing_heavy_is_imported_before_it_is_used():
    code = (
        "import sys, dmls_core.tracking, dmls_core.serving\n"
        "from dmls_core.tracking.registry import promote\nfrom dmls_core.tracking.runs import log_run\n"
        "from dmls_core.serving import Deployment, connect, Repository, TritonClient\n"
        "heavy = {'mlflow', 'pandas', 'treelite', 'tritonclient', 'gevent', 'grpc', 'polars', 'sklearn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
