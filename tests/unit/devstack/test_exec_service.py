from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import psutil

from dmls_core.devstack.processes import ID_VARIABLE, SERVICE_VARIABLE


def launch(file: Path, platform_id: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dmls_core.devstack.exec_service", str(file)],
        env=os.environ | {ID_VARIABLE: platform_id},
        capture_output=True,
        text=True,
        timeout=60,
    )


def service_file(tmp_path: Path, code: str, **more: object) -> Path:
    file = tmp_path / "some.json"
    service = {
        "command": [sys.executable, "-c", code],
        "environment": {SERVICE_VARIABLE: "some", "SECRET": "x"},
        "folder": str(tmp_path),
        "stale": [],
    }
    file.write_text(json.dumps(service | more))
    return file


def test_it_becomes_the_service_with_its_environment_and_folder(tmp_path: Path):
    code = "import os; print(os.getcwd(), os.environ['SECRET'], os.environ['DMLS_SERVICE'])"
    done = launch(service_file(tmp_path, code), "id")
    assert done.stdout.split() == [str(tmp_path), "x", "some"], done.stderr


def test_it_removes_what_a_killed_predecessor_left(tmp_path: Path):
    platform_id = secrets.token_hex(8)
    (tmp_path / "left.sock.1").touch()
    (tmp_path / "kept").touch()
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"],
        env=os.environ | {ID_VARIABLE: platform_id, SERVICE_VARIABLE: "some"},
        stdout=subprocess.PIPE,
    )
    trainer = subprocess.Popen(["sleep", "600"], env=os.environ | {ID_VARIABLE: platform_id})
    try:
        assert orphan.stdout is not None
        orphan.stdout.readline()
        file = service_file(tmp_path, "", stale=[str(tmp_path / "left.sock.*"), str(tmp_path / "never")])
        assert launch(file, platform_id).returncode == 0
        assert orphan.wait(60) == -15
        assert trainer.poll() is None
        assert sorted(p.name for p in tmp_path.iterdir()) == ["kept", "some.json"]
    finally:
        for process in (orphan, trainer):
            process.kill()
            process.communicate()


def test_it_starts_without_heavy_imports():
    code = "import sys, dmls_core.devstack.exec_service; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"airflow", "boto3", "numpy", "mlflow", "psycopg", "dmls_core.devstack.platform"}
    assert not heavy & set(done.stdout.split())
    assert psutil.__name__ in done.stdout.split()
