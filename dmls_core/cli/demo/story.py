"""The demo, told step by step."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from dmls_core.cli.airflow_api import JobRuns
from dmls_core.cli.console import facts, out, say
from dmls_core.cli.demo import iris
from dmls_core.cli.follow import drop, follow
from dmls_core.cli.jobs import print_step, raise_for
from dmls_core.cli.options import JobName
from dmls_core.cli.overview import JobView, describe_job, runner_facts
from dmls_core.cli.starting import print_addresses, start
from dmls_core.errors import PlatformError
from dmls_core.settings import STATE_FILE, Settings
from dmls_core.store import layout, open_store

if TYPE_CHECKING:
    from dmls_core.devstack.platform import Platform, State
    from dmls_core.intake import Status
    from dmls_core.store import Store

RUN_SECONDS = 600.0
"""Longest wait for the run to ask for approval, and for the deployment after it."""

JOB = JobName(iris.TEAM, iris.JOB)

SHOWN = (0, 50, 100)
"""Rows of the data that are predicted: one flower of each species."""


def tell(platform: Platform, *, stays: bool) -> None:
    """Start the platform and take the iris spec all the way.

    Args:
        platform: the embedded platform.
        stays: whether it goes on running, so that its addresses are worth printing.

    Raises:
        DmlsError: a step failed; the platform is left as it is.
    """
    begun = time.monotonic()
    _chapter("Starting the platform: S3, PostgreSQL, MLflow, Triton, Airflow")
    state = start(platform)
    settings = _connect(state)
    store = open_store(settings.root)
    with tempfile.TemporaryDirectory(prefix="dmls-demo-") as scratch:
        table = Path(scratch) / "iris.csv"
        rows = iris.write_csv(table)
        _chapter(f"Dropping spec.toml and iris.csv into {store.url}/{layout.incoming_folder(*JOB)}")
        fingerprint = drop(store, iris.SPEC, [table], *JOB)
    status = _follow(store, fingerprint, pause=True)
    if status.state == "awaiting approval":
        _chapter("Approving the deployment, as a user does on Airflow's page")
        JobRuns(settings, *JOB).approve_latest(say)
        status = _follow(store, fingerprint, pause=False)
    view = describe_job(store, JOB)
    if status.state != "deployed" or view.result is None:
        raise PlatformError(f"the model was not deployed: {status.message}")
    _chapter("Predicting three flowers with plain tritonclient")
    _predict(settings, [rows[number] for number in SHOWN], view.result["labels"])
    _sum_up(view)
    if stays:
        _chapter("Where to look")
        print_addresses(state)
        facts([(f"this run: {name}", url) for name, url in sorted(status.links.items())])
    out.print(f"\n[bold green]done[/] in {time.monotonic() - begun:.0f} s")


def _connect(state: State) -> Settings:
    """Turn this process towards the platform that was started, whatever its environment says of another."""
    if state.settings is None:
        raise PlatformError("the platform is down although it was started: see `dmls doctor`")
    content = json.loads((state.folder / STATE_FILE).read_text())
    os.environ.update(content["environment"])
    return state.settings


def _follow(store: Store, fingerprint: str, *, pause: bool) -> Status:
    status = follow(
        store,
        *JOB,
        fingerprint=fingerprint,
        seconds=RUN_SECONDS,
        show=print_step,
        pause_at=("awaiting approval",) if pause else (),
    )
    raise_for(status)
    return status


def _predict(settings: Settings, rows: list[list[str]], labels: list[str]) -> None:
    """Ask for some rows over both protocols and print what each said."""
    import numpy as np
    from rich.table import Table

    from dmls_core.cli.demo.ask import ask

    measures = np.array([row[:-1] for row in rows], dtype=np.float32)
    answers = ask(settings.triton_http, settings.triton_grpc, layout.model_name(*JOB), measures)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("FLOWER (cm)", "SPECIES", "HTTP", "gRPC"):
        table.add_column(heading, no_wrap=True)
    for row, http, grpc in zip(rows, answers.http, answers.grpc, strict=True):
        cells = [f"{labels[int(answer.argmax())]} {float(answer.max()):.4f}" for answer in (http, grpc)]
        table.add_row(" ".join(row[:-1]), row[-1], *cells)
    out.print(table)
    out.print("the HTTP and the gRPC prediction agree in every bit")


def _sum_up(view: JobView) -> None:
    from dmls_core.spec import Spec

    result, spec = view.result or {}, Spec.from_json(view.spec or {})
    _chapter("The model")
    parameters = ", ".join(
        f"{name}={result['best_params'][name]}" for name in sorted(spec.models[0].searched)
    )
    facts(
        [
            ("model", f"{result['model']} on the {result['engine']} engine, {result['n_trials']} trials"),
            (f"holdout {result['metric']}", f"{result['score']:.4f}"),
            ("parameters", parameters),
            *(runner_facts(view.runner) if view.runner else []),
        ]
    )


def _chapter(title: str) -> None:
    out.print(f"\n[bold]{escape(title)}[/]")
