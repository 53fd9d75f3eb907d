"""A web server that keeps the requests it receives: the other end of a webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Webhook:
    """The received requests, and how they are answered.

    Attributes:
        port: of 127.0.0.1.
        heard: path, content and the header ``Authorization`` of each request.
        code: status of each answer.
    """

    port: int
    heard: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)
    code: int = 200

    @property
    def contents(self) -> list[dict[str, Any]]:
        """The received requests."""
        return [content for _, content, _ in self.heard]


@contextmanager
def webhook() -> Iterator[Webhook]:
    """Serve until the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.heard.append((self.path, json.loads(body), self.headers.get("Authorization", "")))
            self.send_response(received.code)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Webhook(server.server_port)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
