from __future__ import annotations

import subprocess
import sys

LIGHT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "polars", "treelite", "sklearn", "pydantic", "mlflow",
                                      "boto3", "typer", "geventhttpclient", "gevent", "airflow", "scipy"):
            raise ImportError(f"{name} must not be needed")

sys.meta_path.insert(0, Refuse())
from dmls_core.serving import connect
from dmls_core.errors import ServingError
try:
    connect("lab.iris", grpc="127.0.0.1:9", timeout=2)
except ServingError as error:
    print(error)
"""


def test_the_client_needs_numpy_and_tritonclient_alone():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=120)
    assert "127.0.0.1:9 does not answer" in done.stdout, done.stderr
