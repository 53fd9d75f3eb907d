"""What an end-to-end test does to a running platform: drop, wait, approve, ask; by public protocols alone."""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3

FINAL = ("deployed", "failed", "rejected")
PATIENCE = 900.0
"""Seconds that a run may take on a slow machine beside others."""

PAUSED = ("awaiting_input", "deferred")


@dataclass
class PlatformClient:
    """A platform as its users see it: S3, Airflow's REST API, MLflow's and Triton's HTTP."""

    state_file: Path

    @cached_property
    def state(self) -> dict[str, Any]:
        return json.loads(self.state_file.read_text())

    @property
    def settings(self) -> dict[str, str]:
        return self.state["settings"]

    @cached_property
    def s3(self) -> Any:
        env = self.state["environment"]
        return boto3.client(
            "s3",
            endpoint_url=env["AWS_ENDPOINT_URL"],
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
            region_name=env.get("AWS_DEFAULT_REGION", "us-east-1"),
        )

    @cached_property
    def place(self) -> tuple[str, str]:
        bucket, _, prefix = self.settings["root"].removeprefix("s3://").partition("/")
        return bucket, f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    # -- S3 ----------------------------------------------------------------------------------------
    def put(self, key: str, body: bytes | str) -> None:
        bucket, prefix = self.place
        self.s3.put_object(Bucket=bucket, Key=prefix + key, Body=body)

    def get(self, key: str) -> bytes | None:
        bucket, prefix = self.place
        try:
            return self.s3.get_object(Bucket=bucket, Key=prefix + key)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None

    def delete(self, key: str) -> None:
        bucket, prefix = self.place
        self.s3.delete_object(Bucket=bucket, Key=prefix + key)

    def keys(self, prefix: str) -> list[str]:
        bucket, base = self.place
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=base + prefix)
        return [o["Key"].removeprefix(base) for page in pages for o in page.get("Contents", [])]

    def drop(self, team: str, job: str, spec: str | bytes | None, data: bytes | str | None) -> None:
        """Put a submission as any S3 client would: data first, spec last."""
        if data is not None:
            self.put(f"incoming/{team}/{job}/data.csv", data)
        if spec is not None:
            self.put(f"incoming/{team}/{job}/spec.toml", spec)

    def status(self, team: str, job: str) -> dict[str, Any]:
        body = self.get(f"incoming/{team}/{job}/_status.json")
        return json.loads(body) if body else {"state": "unanswered", "message": ""}

    def run_file(self, team: str, job: str, name: str) -> dict[str, Any]:
        run_key = self.status(team, job)["run_key"]
        body = self.get(f"runs/{team}/{job}/{run_key}/{name}")
        assert body is not None, f"{name} is not in the run's folder"
        return json.loads(body)

    def wait_status(
        self, team: str, job: str, *states: str, timeout: float = PATIENCE, final: Collection[str] = FINAL
    ) -> dict[str, Any]:
        """Wait until the answer's state is one of ``states``; another one of ``final`` ends the wait."""
        end = time.monotonic() + timeout
        status = self.status(team, job)
        while status["state"] not in states:
            assert status["state"] not in final, f"{team}/{job}: {json.dumps(status, indent=1)}"
            assert time.monotonic() < end, f"{team}/{job} is still {status['state']}: {status['message']}"
            time.sleep(0.5)
            status = self.status(team, job)
        return status

    # -- Airflow -----------------------------------------------------------------------------------
    @cached_property
    def token(self) -> str:
        user = {
            "username": self.settings["airflow_username"],
            "password": self.settings["airflow_password"],
        }
        return self._call("POST", "/auth/token", user, token=False)[1]["access_token"]

    def _call(self, method: str, path: str, body: Any = None, token: bool = True) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(
            self.settings["airflow_url"].rstrip("/") + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers=headers,
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def airflow(self, method: str, path: str, body: Any = None) -> Any:
        code, answer = self._call(method, f"/api/v2{path}", body)
        assert code < 300, f"{method} {path}: {code} {answer}"
        return answer

    def dag_exists(self, dag_id: str) -> bool:
        return self._call("GET", f"/api/v2/dags/{dag_id}")[0] == 200

    def runs(self, team: str, job: str) -> list[dict[str, Any]]:
        return self.airflow("GET", f"/dags/dmls.{team}.{job}/dagRuns")["dag_runs"]

    def wait_run(self, team: str, job: str, state: str, timeout: float = PATIENCE) -> dict[str, Any]:
        """Wait until the job's only run has ended, in ``state``."""
        end = time.monotonic() + timeout
        while True:
            runs = self.runs(team, job) if self.dag_exists(f"dmls.{team}.{job}") else []
            if runs and runs[0]["state"] in ("success", "failed"):
                assert len(runs) == 1, runs
                assert runs[0]["state"] == state, (runs[0], self.status(team, job))
                return runs[0]
            assert time.monotonic() < end, f"{team}/{job}: {runs} {self.status(team, job)}"
            time.sleep(0.5)

    def wait_task(
        self, team: str, job: str, task_id: str, *states: str, timeout: float = PATIENCE
    ) -> dict[str, Any]:
        """Wait until a task of the job's only run is in one of ``states``."""
        end = time.monotonic() + timeout
        while True:
            if self.dag_exists(f"dmls.{team}.{job}") and self.runs(team, job):
                found = self.task(team, job, task_id)
                if found["state"] in states:
                    return found
            assert time.monotonic() < end, f"{task_id} of {team}/{job} is not {states}"
            time.sleep(0.3)

    def tasks(self, team: str, job: str, run_id: str) -> list[dict[str, Any]]:
        path = f"/dags/dmls.{team}.{job}/dagRuns/{quote(run_id)}/taskInstances"
        return self.airflow("GET", path)["task_instances"]

    def task(self, team: str, job: str, task_id: str) -> dict[str, Any]:
        (run,) = self.runs(team, job)
        (found,) = [t for t in self.tasks(team, job, run["dag_run_id"]) if t["task_id"] == task_id]
        return found

    def approve(self, team: str, job: str, option: str = "Approve") -> None:
        """Answer the pending approval as a user does on Airflow's page."""
        self.wait_status(team, job, "awaiting approval")
        self.answer(team, job, option)

    def answer(self, team: str, job: str, option: str) -> None:
        """Answer the approval of the latest run, whatever the status of the job says."""
        run = self.runs(team, job)[-1]["dag_run_id"]
        path = f"/dags/dmls.{team}.{job}/dagRuns/{quote(run)}/taskInstances/approve/-1/hitlDetails"
        answer = {"chosen_options": [option], "params_input": {}}
        end = time.monotonic() + 120
        # Airflow notes an answer that is given between the question and the task's pause, and then waits for
        # ever; one given before the scheduler has seen the pause counts as a task that was killed.
        while (state := self.task(team, job, "approve")["state"]) not in ("success", "skipped"):
            assert time.monotonic() < end, f"approval: {state}"
            time.sleep(2)
            if state in PAUSED:
                self._call("PATCH", f"/api/v2{path}", answer)

    # -- Triton and MLflow -------------------------------------------------------------------------
    def infer(self, model: str, rows: list[list[float]]) -> list[float]:
        """Ask Triton with plain HTTP, as curl would."""
        body = {
            "inputs": [
                {
                    "name": "input__0",
                    "shape": [len(rows), len(rows[0])],
                    "datatype": "FP32",
                    "data": [value for row in rows for value in row],
                }
            ]
        }
        request = urllib.request.Request(
            f"http://{self.settings['triton_http']}/v2/models/{model}/infer",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())["outputs"][0]["data"]

    def mlflow(self, path: str) -> bytes:
        """Get a page or a record of MLflow with the platform's login."""
        names = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
        # The platforms of old commits, in tests/bench/upgrade.py, had no login.
        login = ":".join(self.state["environment"].get(name, "") for name in names)
        request = urllib.request.Request(
            self.settings["mlflow_uri"] + path,
            headers={"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read()

    def champion(self, model: str) -> dict[str, Any]:
        path = f"/api/2.0/mlflow/registered-models/alias?name={quote(model)}&alias=champion"
        version = json.loads(self.mlflow(path))["model_version"]
        return version | {"tags": {tag["key"]: tag["value"] for tag in version.get("tags", [])}}
