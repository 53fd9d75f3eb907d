"""Every snippet runs as pasted, against a server that records what it receives.

Power Query runs in Excel and Power BI only; a unit test checks its literal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dmls_core.devstack.postgres import superuser
from dmls_core.web.services.snippets import KEY, KEY_FILE, ROW_FILE, make_snippets
from tests.services.postgres_server import PostgresServer
from tests.unit.web.services.test_snippets import PATH, ROW

ANSWER = [{"prediction": "yes", "probability_no": 0.25}]
HEADERS = ("Authorization", "Content-Type", "X-Request-ID")
API_KEY = "dmls_0123456789ab_0"


@pytest.fixture
def received() -> list[dict[str, Any]]:
    """The requests that the server received."""
    return []


@pytest.fixture
def address(received: list[dict[str, Any]]) -> Iterator[str]:
    class Airflow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name: self.headers[name] for name in HEADERS}
            received.append({"path": self.path, "rows": json.loads(body), **headers})
            content = json.dumps(ANSWER).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Airflow)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


WIDE = {f"column {number}": number / 7 for number in range(2_000)}


def snippet(language: str, address: str, row: dict[str, Any] = ROW) -> str:
    found = make_snippets(f"http://{address}{PATH}", row)
    return next(each.code for each in found if each.language == language)


def run(command: list[str], tmp_path: Path) -> str:
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    environment = os.environ | {KEY: API_KEY}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment)
    if "there is no package called" in done.stderr or "is required" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(received: list[dict[str, Any]], row: dict[str, Any] = ROW) -> None:
    (request,) = received
    assert (request["path"], request["rows"]) == (PATH, [row])
    assert request["Authorization"] == f"Bearer {API_KEY}"
    assert request["Content-Type"] == "application/json"


LANGUAGES = pytest.mark.parametrize(
    ("language", "file", "command"),
    [
        ("curl", "request.sh", ["bash"]),
        ("curl", "request.sh", ["sh"]),
        ("Python", "request.py", [sys.executable]),
        ("JavaScript", "request.js", ["node"]),
        ("JavaScript", "request.mjs", ["node"]),
        ("R", "request.R", ["Rscript"]),
    ],
)


@LANGUAGES
def test_a_snippet_sends_the_row_and_prints_the_prediction(
    language: str, file: str, command: list[str], address: str, received: list[dict[str, Any]], tmp_path: Path
):
    (tmp_path / file).write_text(snippet(language, address), encoding="ascii")
    out = run([*command, file], tmp_path)
    assert "prediction" in out
    assert "yes" in out
    check(received)


@pytest.mark.parametrize(
    ("language", "command", "comment"),
    [("Python", sys.executable, '# "X-R'), ("JavaScript", "node", '// "X-R'), ("R", "Rscript", "# req_h")],
    ids=["Python", "JavaScript", "R"],
)
def test_the_id_of_a_request_needs_no_more_than_its_comment_removed(
    language: str, command: str, comment: str, address: str, received: list[dict[str, Any]], tmp_path: Path
):
    code = snippet(language, address)
    assert code.count(comment) == 1
    (tmp_path / "request.mjs").write_text(code.replace(comment, comment.lstrip("#/ ")))
    run([command, "request.mjs"], tmp_path)
    assert received[0]["X-Request-ID"] == "order-17"


@LANGUAGES
def test_a_snippet_sends_a_long_row_from_its_file(
    language: str, file: str, command: list[str], address: str, received: list[dict[str, Any]], tmp_path: Path
):
    (tmp_path / file).write_text(snippet(language, address, WIDE), encoding="ascii")
    (tmp_path / ROW_FILE).write_text(json.dumps([WIDE]))
    assert "yes" in run([*command, file], tmp_path)
    check(received, WIDE)


def test_the_sql_snippet_runs_in_postgresql(
    address: str, received: list[dict[str, Any]], postgres: PostgresServer
):
    key = postgres.context.state / "postgres" / "data" / KEY_FILE
    key.write_text(f"{API_KEY}\n")
    key.chmod(0o644)  # the server is another user
    with superuser(postgres.context) as connection:
        results = connection.execute(snippet("SQL", address)).results()  # type: ignore[arg-type]
        (rows,) = [found.fetchall() for found in results if found.description]
    assert rows == [("prediction", "yes"), ("probability_no", "0.25")]
    check(received)
