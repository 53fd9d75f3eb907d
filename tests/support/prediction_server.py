"""A server of the REST API's predictions that records what it gets."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer


class Server(HTTPServer):
    """Answers with the sum of each row, or with ``answer``; first refuses a request for each of ``waits``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.answer: tuple[int, object] | None = None
        self.notes = ""
        self.waits: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


def sums_of(body: str) -> list[dict[str, object]]:
    rows = json.loads(body)
    return [{"prediction": "p", "probability_a,b": sum(float(v or 0) for v in row.values())} for row in rows]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Server = self.server  # type: ignore[assignment]
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        server.bodies.append(body)
        server.headers.append({**self.headers, "path": self.path})
        busy = 429, {"title": "Too Many Requests", "detail": "the server is busy"}
        status, answer = busy if server.waits else server.answer or (200, sums_of(body))
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if server.waits:
            self.send_header("Retry-After", server.waits.pop(0))
        self.send_header("X-Request-ID", self.headers.get("X-Request-ID", "made"))
        if server.notes:
            self.send_header("DMLS-Notes", server.notes)
        self.send_header("Location", f"{server.url}/elsewhere")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass
