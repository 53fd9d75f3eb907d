"""Triton sends OpenTelemetry traces of requests to the collector that ``DMLS_TRITON_OPTIONS`` names."""

from __future__ import annotations

import http.server
import json
import shlex
import threading
from urllib.request import Request, urlopen

import pytest

from dmls_core.devstack.supervisor import wait_until
from dmls_core.serving.triton.model_config import table_name
from tests.services.triton_server import new_triton
from tests.support.table_endpoint import Served, request_body
from tests.support.trained_run import user_rows

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps the spans that it receives by OTLP over HTTP."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Receive)
        self.spans, self.services = [], set()


class Receive(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.path == "/v1/traces"
        for resource in body["resourceSpans"]:
            about = attributes(resource["resource"])
            self.server.services.add(about["service.name"])
            for scope in resource["scopeSpans"]:
                self.server.spans += scope["spans"]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def attributes(part):
    return {a["key"]: next(iter(a["value"].values())) for a in part.get("attributes", ())}


@pytest.fixture
def collector():
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_requests_of_a_trace_are_spans_of_it(collector, tmp_path, monkeypatch):
    traces = {
        "mode": "opentelemetry",
        "level": "TIMESTAMPS",
        "rate": "1",
        "opentelemetry,url": f"http://127.0.0.1:{collector.server_port}/v1/traces",
        "opentelemetry,resource": "service.name=triton lab",
        "opentelemetry,bsp_schedule_delay": "200",
    }
    options = shlex.join(f"--trace-config={name}={value}" for name, value in traces.items())
    monkeypatch.setenv("DMLS_TRITON_OPTIONS", options)
    triton = new_triton(tmp_path)
    triton.start()
    try:
        with triton.client() as client:
            served = Served(triton.repository, client, tmp_path / "run")
            table = table_name(served.name)
            body = json.dumps(request_body(served.encoder, user_rows(40))).encode()
            request = Request(
                f"http://{client.addresses['http']}/v2/models/{table}/infer",
                data=body,
                headers={"traceparent": f"00-{TRACE}-{PARENT}-01"},
            )
            with urlopen(request, timeout=60) as answer:
                assert answer.status == 200

            def traced():
                return [span for span in collector.spans if span["traceId"] == TRACE]

            def models():
                return {attributes(span).get("triton.model_name") for span in traced()}

            # So many rows are predicted by the forest, within the same trace.
            wait_until(lambda: {table, served.name} <= models(), 60)
    finally:
        triton.stop()
    assert PARENT in {span["parentSpanId"] for span in traced()}
    assert collector.services == {"triton lab"}
