"""The whole way: from a dropped spec and CSV to a served model."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from urllib.parse import quote, urlencode

import polars as pl
import psutil
import pytest

from tests.e2e import data
from tests.services.demo_platform import Demo
from tests.services.platform_client import PATIENCE, PlatformClient


def drop_ahead(platform: PlatformClient) -> None:
    platform.drop("lab", "declined", data.SMALL_IRIS, data.iris())
    platform.drop("lab", "late", data.SMALL_IRIS + "[deploy]\napproval_timeout = 2\n", data.iris())
    platform.drop("lab", "withdrawn", data.SMALL_IRIS, data.iris())


def test_the_demo_trains_deploys_and_predicts(demo: Demo):
    assert demo.exit_code == 0, demo.output
    accuracy = re.search(r"accuracy\D*(\d\.\d+)", demo.output)
    assert accuracy, demo.output
    assert float(accuracy[1]) >= 0.9
    assert "HTTP" in demo.output
    assert "gRPC" in demo.output


def test_the_demo_job_is_recorded_from_end_to_end(platform: PlatformClient):
    (team, job) = next(
        key.split("/")[1:3] for key in platform.keys("incoming/") if key.endswith("iris/spec.toml")
    )
    status = platform.status(team, job)
    result = platform.run_file(team, job, "result.json")

    assert status["state"] == "deployed"
    assert result["score"] >= 0.9
    assert result["n_trials"] == 5
    assert set(result["seconds"]) >= {"load", "validate", "search", "refit", "export", "total"}
    assert {a["name"] for a in result["artifacts"]} >= {"model/checkpoint.tl", "model/encoder.json"}
    assert platform.champion(f"{team}.{job}")["tags"]["dmls.run_key"] == status["run_key"]
    assert any(
        key.endswith(".html") for key in platform.keys(f"runs/{team}/{job}/{status['run_key']}/validation")
    )


def test_the_deployment_measured_the_model_and_proved_its_answers(platform: PlatformClient):
    deployment = platform.run_file("demo", "iris", "deployment.json")
    served = deployment["serving"]
    assert (deployment["model"], deployment["version"]) == ("demo.iris", 1)
    assert served["reason"]
    assert all(found["requests_per_second"] for found in served["measured"])
    serving = platform.champion("demo.iris")["tags"]["dmls.serving"]
    assert serving.startswith(f"{served['instances']} instance")
    run_key = platform.status("demo", "iris")["run_key"]
    card = (platform.get(f"runs/demo/iris/{run_key}/card.html") or b"").decode()
    assert "<h2>Serving</h2>" in card
    assert escape(serving) in card
    golden = platform.run_file("demo", "iris", "model/golden.json")
    answer = platform.infer("demo.iris", golden["encoded"])
    expected = [value for row in golden["expected"] for value in row]
    assert answer == pytest.approx(expected, abs=1e-6)


def test_the_served_model_is_signed_and_no_secret_is_told(demo: Demo, tmp_path):
    state = json.loads((demo.home / "platform.json").read_text())
    version = Path(state["settings"]["triton_repository"]) / "demo.iris/1"
    key = tmp_path / "public.pem"
    key.write_text(state["environment"]["DMLS_SIGNERS"])
    verify = [sys.executable, "-m", "model_signing", "verify", "key", "--public_key", str(key)]
    checked = subprocess.run(
        [*verify, "--signature", str(version / "model.sig"), str(version)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    private = json.loads((demo.home / "identity.json").read_text())["credentials"]["signing_key"]
    secret = private.splitlines()[1]
    logs = [path for path in (demo.home / "logs").rglob("*") if path.is_file()]
    assert logs
    assert [path for path in logs if secret in path.read_text(errors="replace")] == []
    assert [p for p in psutil.process_iter(["cmdline"]) if secret in " ".join(p.info["cmdline"] or ())] == []


def test_dropped_files_are_scored_by_the_served_version(platform: PlatformClient, demo: Demo, tmp_path):
    table = pl.read_csv(data.iris().encode())
    rows = io.BytesIO()
    table.write_parquet(rows)
    platform.put("scoring/demo/iris/may.parquet", rows.getvalue())
    bad, good = tmp_path / "bad.csv", tmp_path / "good.csv"
    table.write_csv(good)
    bad.write_text(f"{','.join(table.columns)}\n{',?' * (table.width - 1)}\n")

    scored = demo.dmls("score", "demo/iris", str(good), "--json")
    assert scored.returncode == 0, scored.stderr
    (record,) = json.loads(scored.stdout)["files"]
    assert (record["state"], record["rows"], record["version"]) == ("scored", table.height, 1)
    refused = demo.dmls("score", "demo/iris", str(bad))
    assert refused.returncode == 1
    assert "row 1: '?' is not a number" in refused.stderr

    found = pl.read_csv(platform.get("scored/demo/iris/good.csv") or b"")
    assert found.select(table.columns).equals(table)
    assert set(found["model_version"]) == {1}
    end = time.monotonic() + PATIENCE
    while (content := platform.get("scored/demo/iris/may.parquet")) is None:
        assert time.monotonic() < end, platform.get("scored/demo/iris/may.parquet.json")
        time.sleep(0.5)
    other = pl.read_parquet(io.BytesIO(content))
    assert other["prediction"].cast(pl.String).equals(found["prediction"].cast(pl.String))
    assert platform.get("scored/demo/iris/bad.csv") is None


LOAD = """
import json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "dmls_core":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model("models:/demo.iris@champion")
names = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
frame = pandas.DataFrame([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]], columns=names)
print(json.dumps(list(model.predict(frame)["prediction"])))
"""


def test_anyone_loads_the_champion_from_mlflow_without_dmls(platform: PlatformClient, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOAD, platform.settings["mlflow_uri"]],
        cwd=tmp_path,
        env=os.environ | platform.state["environment"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["setosa", "virginica"]


def test_the_report_is_one_click_away(platform: PlatformClient):
    run = quote(platform.runs("demo", "iris")[-1]["dag_run_id"], safe="")

    tasks = f"/dags/dmls.demo.iris/dagRuns/{run}/taskInstances"
    found = [
        platform.airflow("GET", f"{tasks}/{task}/links")["extra_links"]
        for task in ("register", "approve", "stage", "promote")
    ]

    links = found[0]
    assert found == [links] * 4
    assert links["Report"] == f"{links['MLflow run']}/artifacts/report.html"
    assert platform.status("demo", "iris")["links"]["report"] == links["Report"]
    query = urlencode({"path": "report.html", "run_uuid": links["MLflow run"].rsplit("/", 1)[1]})
    assert b"Content-Security-Policy" in platform.mlflow(f"/get-artifact?{query}")


def test_the_same_drop_twice_makes_one_run(platform: PlatformClient):
    before = platform.status("demo", "iris")

    for key in ("iris.csv", "spec.toml"):
        platform.put(f"incoming/demo/iris/{key}", platform.get(f"incoming/demo/iris/{key}"))
    platform.airflow("POST", "/dags/dmls.intake/dagRuns", {"logical_date": None})
    wait_for_intake(platform)

    assert len(platform.runs("demo", "iris")) == 1
    assert platform.status("demo", "iris")["run_key"] == before["run_key"]
    assert platform.status("demo", "iris")["state"] == "deployed"


def test_a_rejected_approval_deploys_nothing(platform: PlatformClient):
    platform.approve("lab", "declined", "Reject")

    platform.wait_run("lab", "declined", "success")
    status = platform.status("lab", "declined")
    assert status["state"] == "trained"

    assert "not deployed" in status["message"]
    (run,) = platform.runs("lab", "declined")
    states = {t["task_id"]: t["state"] for t in platform.tasks("lab", "declined", run["dag_run_id"])}
    assert (states["stage"], states["promote"]) == ("skipped", "skipped")


def test_an_approval_that_nobody_gives_keeps_the_champion(platform: PlatformClient):
    platform.wait_run("lab", "late", "success")

    status = platform.status("lab", "late")
    assert status["state"] == "trained"
    assert "the approval was not answered by its deadline; the champion stays" in status["message"]
    decision = json.loads(platform.get(f"runs/lab/late/{status['run_key']}/decision.json") or b"{}")
    assert (decision["decision"], decision["by"]) == ("keep", "deadline")


def test_an_approval_after_the_spec_was_deleted_deploys_nothing(platform: PlatformClient):
    status = platform.wait_status("lab", "withdrawn", "awaiting approval")

    platform.delete("incoming/lab/withdrawn/spec.toml")
    wait_for(lambda: "waits for an approval" in platform.status("lab", "withdrawn")["message"])
    platform.answer("lab", "withdrawn", "Approve")

    platform.wait_run("lab", "withdrawn", "success")
    (run,) = platform.runs("lab", "withdrawn")
    states = {t["task_id"]: t["state"] for t in platform.tasks("lab", "withdrawn", run["dag_run_id"])}
    assert (states["stage"], states["promote"]) == ("skipped", "skipped")
    decision = json.loads(platform.get(f"runs/lab/withdrawn/{status['run_key']}/decision.json") or b"{}")
    assert (decision["decision"], decision["by"]) == ("keep", "retirement")
    assert decision["reason"] == "the job was retired"


def test_removing_the_drop_retires_the_dag_and_keeps_its_history(platform: PlatformClient):
    platform.wait_run("lab", "late", "success")

    platform.delete("incoming/lab/late/spec.toml")

    wait_for(lambda: json.loads(platform.get("registry/jobs/lab/late.json"))["state"] == "retired")
    wait_for(lambda: platform.airflow("GET", "/dags/dmls.lab.late")["is_stale"])
    assert len(platform.runs("lab", "late")) == 1


def wait_for_intake(platform: PlatformClient) -> None:
    wait_for(
        lambda: all(
            run["state"] in ("success", "failed")
            for run in platform.airflow("GET", "/dags/dmls.intake/dagRuns?order_by=-run_after&limit=5")[
                "dag_runs"
            ]
        )
    )


def wait_for(condition, timeout: float = PATIENCE) -> None:
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(1)
