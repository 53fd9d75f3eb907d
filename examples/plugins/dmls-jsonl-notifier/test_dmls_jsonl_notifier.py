import json

import pytest

from dmls_core.testing import NotifierSuite


class TestJsonLinesNotifier(NotifierSuite):
    name = "jsonl"

    @pytest.fixture
    def received(self, connection, tmp_path):
        path = tmp_path / "messages.jsonl"
        connection(conn_type="generic", extra={"path": str(path)})
        return lambda: [
            " ".join(map(str, json.loads(line).values())) for line in path.read_text().splitlines()
        ]

    @pytest.fixture
    def broken(self, connection, tmp_path):
        connection(conn_type="generic", extra={"path": str(tmp_path)})  # a folder
