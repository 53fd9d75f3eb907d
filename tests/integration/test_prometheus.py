"""What a real Prometheus scrapes of Triton and of DMLS, and whether the dashboard asks for that."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from dmls_core.devstack.supervisor import http_answers, wait_until
from dmls_core.monitoring.drift import compare
from dmls_core.monitoring.profile import Values, profile_of
from dmls_core.monitoring.prometheus import count, decay_file, decay_metrics, drift_file, drift_metrics
from dmls_core.serving import Deployment, ServingOptions
from dmls_core.store import ProcessFailure, ProcessFailures, open_store, write_process_failures
from tests.services.prometheus_server import Prometheus
from tests.services.seaweed import free_ports
from tests.support.table_endpoint import Served
from tests.support.trained_run import trained_run, user_rows

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "images/grafana/dashboards/dmls.json"
CONFIG = ROOT / "images/prometheus/prometheus.yaml"
ALERTS = ROOT / "images/prometheus/alerts.yaml"
TOKEN = "shown by Prometheus alone"
NAME = "lab.scraped"
LABELS = 'team="lab",job="scraped"'

_NAME = re.compile(r"\b(?:nv|dmls)_[a-z0-9_]+")


def expressions():
    """Return what the dashboard asks, with its variables at their default."""
    board = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    return [re.sub(r"\$(team|job)", ".*", expression) for expression in asked]


def alerts():
    """Return the alerts by name, each with its expression."""
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def scrape(address, token=TOKEN):
    """Return the metrics of Airflow's API server."""
    request = urllib.request.Request(
        f"http://{address}/dmls-metrics/", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def write_metrics(root):
    """Count and compare as the platform does."""
    store = open_store(str(root))
    count(store, "lab", "scraped", "deployments", 2)
    count(store, "lab", "scraped", "drifts")
    ended = ProcessFailure("lab.scraped", "triton:8000", "2026-02-01T00:00:00+00:00")
    write_process_failures(store, "lab.scraped", ProcessFailures((ended,), reloads=2))
    draw = np.random.default_rng(0)
    old = profile_of([Values("size", "feature", draw.normal(size=500))], 500)
    new = {("feature", "size"): Values("size", "feature", draw.normal(size=500) + 2)}
    text = drift_metrics(compare(old, new, 500, 0.2), "lab", "scraped", "requests")
    store.put(drift_file("lab", "scraped", "requests"), text.encode())
    version = {"version": 3, "metric": "accuracy", "rows": 300, "score": 0.8, "trained_score": 0.9}
    labels = {"team": "lab", "job": "scraped", "at": "2026-02-01T00:00:00+00:00", "verdict": "decayed"}
    store.put(decay_file("lab", "scraped"), decay_metrics(labels | {"versions": [version]}).encode())


@pytest.fixture(scope="module")
def exposed(tmp_path_factory):
    """Address of a process that answers as Airflow's API server does, with four runs in its database."""
    folder = tmp_path_factory.mktemp("airflow")
    write_metrics(folder / "root")
    kwargs = {"root": str(folder / "root"), "runner": "process"}
    bundle = {"name": "dmls", "classpath": "dmls_core.airflow.bundle.DmlsBundle", "kwargs": kwargs}
    environment = os.environ | {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
        "DMLS_METRICS_TOKEN": TOKEN,
    }
    migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
    subprocess.run(migrate, env=environment, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.support.metrics_server", str(port)]
    server = subprocess.Popen(command, env=environment, cwd=ROOT)
    try:
        wait_until(lambda: http_answers(f"http://127.0.0.1:{port}/dmls-metrics/", 401), 120)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def asked(triton, tmp_path_factory):
    """Triton's own metrics, of a model with an inference log that was asked."""
    folder = tmp_path_factory.mktemp("runs")
    with triton.client(timeout=60.0) as client:
        served = Served(triton.repository, client, folder / "a", NAME)
        trained_run(folder / "b", seed=1)
        options = ServingOptions(log_share=1.0)
        Deployment(triton.repository, client, NAME).deploy(folder / "b/model", options=options)
        served.ask(user_rows(3))
    return triton.context.address("triton_metrics")


def test_a_wrong_token_is_rejected(exposed):
    with pytest.raises(urllib.error.HTTPError) as refused:
        scrape(exposed, token="guessed")
    with refused.value:
        assert refused.value.code == 401


def test_deployments_drift_and_runs_are_exposed(exposed):
    values = {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(scrape(exposed))
        for sample in family.samples
    }

    def value(name, *labels):
        return values[name, frozenset(("lab", "scraped", *labels))]

    assert value("dmls_deployments_total") == 2
    assert value("dmls_rollbacks_total") == 0
    assert value("dmls_drift_detected", "requests") == 1
    assert value("dmls_decay_detected") == 1
    assert value("dmls_run_duration_seconds_count", "success") == 2
    # Two runs of 30 s.
    assert value("dmls_run_duration_seconds_sum", "success") == pytest.approx(60, abs=0.1)
    assert value("dmls_runs_open", "running") == 1


def test_the_dashboard_and_the_alerts_name_only_metrics_that_are_scraped(exposed, asked):
    with urllib.request.urlopen(f"http://{asked}/metrics", timeout=30) as answer:
        scraped = scrape(exposed) + answer.read().decode()
    known = {re.split(r"[{ ]", line)[0] for line in scraped.splitlines() if line and line[0] != "#"}
    asked_for = [*expressions(), *alerts().values()]
    named = {name for expression in asked_for for name in _NAME.findall(expression)}
    assert len(named) >= 15
    assert named - known == set()


def test_a_real_prometheus_scrapes_both_and_answers_the_dashboard(
    exposed, asked, prometheus_programs, tmp_path
):
    """The stack's own configuration, at other addresses."""
    config = yaml.safe_load(CONFIG.read_text())
    (tmp_path / "token").write_text(TOKEN)
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [{"triton": asked, "dmls": exposed}[job["job_name"]]]}]
        job["scrape_interval"] = job["scrape_timeout"] = "5s"
        if "authorization" in job:
            job["authorization"]["credentials_file"] = str(tmp_path / "token")
    checked = subprocess.run(
        [prometheus_programs / "promtool", "check", "metrics"],
        input=scrape(exposed),
        capture_output=True,
        text=True,
    )
    assert (checked.returncode, checked.stderr) == (0, "")
    (tmp_path / "alerts.yaml").write_text(ALERTS.read_text())
    server = Prometheus(prometheus_programs, tmp_path, config)
    server.start()
    try:
        server.wait_scraped({"triton", "dmls"})
        answers = {expression: server.query(expression) for expression in expressions()}
        # Rates need a second scrape; what they are made of was looked for above.
        empty = [expression for expression, found in answers.items() if not found]
        assert [expression for expression in empty if not re.search(r"(rate|increase)\(", expression)] == []
        (deployed,) = server.query(f"dmls_deployments_total{{{LABELS}}}")
        assert deployed["value"][1] == "2"
        (group,) = server.get("rules")["groups"]
        assert [rule["name"] for rule in group["rules"]] == list(alerts())
        (ended,) = server.query(alerts()["ProcessEnded"])
        assert ended["metric"]["server"] == "triton:8000"
    finally:
        server.stop()
