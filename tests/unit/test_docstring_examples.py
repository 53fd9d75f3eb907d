"""The examples in the docstrings of what clients and plug-in authors call, run as they stand."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from dmls_core.airflow.settings import AirflowSettings

PAGE = (Path(__file__).parents[2] / "docs/reference/python-api.md").read_text()
NAMES = [name for name in re.findall(r"^::: (\S+)$", PAGE, re.MULTILINE) if name != "dmls_core.errors"]
NAMES += ["dmls_core.errors.UserError", "dmls_core.errors.ValidationIssue"]
WITH_TRITON = {"dmls_core.serving.connect"}
"""Run by tests/integration/test_connect.py."""
ADDRESS = "https://airflow.example"


class Setosa(BaseHTTPRequestHandler):
    """Predicts one class for every row of a request in JSON."""

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps([{"prediction": "setosa", "probability_setosa": 0.98}] * len(rows)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server():
    with HTTPServer(("127.0.0.1", 0), Setosa) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def public_object(name: str) -> object:
    package, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(package), attribute)


def examples_of(name: str) -> list[doctest.DocTest]:
    """Examples of an object and, of a class, of its public methods."""
    item = public_object(name)
    items = {name: item}
    if inspect.isclass(item):
        items |= {f"{name}.{key}": value for key, value in vars(item).items() if not key.startswith("_")}
    parser = doctest.DocTestParser()
    docs = {key: inspect.getdoc(value) for key, value in items.items() if getattr(value, "__doc__", None)}
    return [
        test for key, doc in docs.items() if (test := parser.get_doctest(doc, {}, key, None, None)).examples
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name):
    assert examples_of(name)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_TRITON])
def test_the_example_does_what_it_shows(name, server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failures = []
    for test in examples_of(name):
        test.globs["settings"] = AirflowSettings(root=str(tmp_path / "root"))
        for example in test.examples:
            example.source = example.source.replace(ADDRESS, server)
            example.want = example.want.replace(ADDRESS, server)
        doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=failures.append)
    assert failures == []
