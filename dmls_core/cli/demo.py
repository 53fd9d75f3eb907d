"""The steps of ``dmls demo``: upload the iris example, train, approve and predict, on real services."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmls_core.cli.console import JobName, facts, literal, out, say
from dmls_core.cli.job_commands import follow, print_step, raise_for, upload
from dmls_core.cli.job_view import JobRuns, JobView, describe_job, runner_facts
from dmls_core.cli.platform_start import print_addresses, start
from dmls_core.errors import PlatformError, ServingError
from dmls_core.html.formats import describe_model
from dmls_core.settings import STATE_FILE, Settings, state_folder
from dmls_core.store import layout, open_store

if TYPE_CHECKING:
    from dmls_core.devstack.platform import Platform, State
    from dmls_core.intake import Status
    from dmls_core.store import Store


JOB = JobName("demo", "iris")

COLUMNS = ("sepal_length", "sepal_width", "petal_length", "petal_width", "species")

SPEC = Path(__file__).with_name("demo.toml")


def write_csv(target: Path) -> list[list[str]]:
    """Write the 150 flowers as CSV, and return their rows (four lengths in cm, species)."""
    from sklearn.datasets import load_iris

    data = load_iris()
    rows = [
        [*(f"{length:.1f}" for length in lengths), str(data.target_names[species])]
        for lengths, species in zip(data.data, data.target, strict=True)
    ]
    with target.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    return rows


_RUN_SECONDS = 600.0
"""Longest wait for the run to need approval, and for the deployment after it."""

_SHOWN = (0, 50, 100)
"""Rows to predict: one flower of each species."""


def run_demo(platform: Platform, *, stays: bool) -> None:
    """Start the platform, and take the iris example from an upload to predictions.

    The addresses are printed if the platform ``stays``. It keeps running if a step raises a ``DmlsError``.
    """
    begun = time.monotonic()
    _heading("Starting the platform: S3, PostgreSQL, MLflow, Triton, Airflow")
    state = start(platform)
    settings = _connect(state)
    store = open_store(settings.root)
    with tempfile.TemporaryDirectory(prefix="dmls-demo-") as scratch:
        table = Path(scratch) / "iris.csv"
        rows = write_csv(table)
        _heading(f"Uploading spec.toml and iris.csv to {store.url}/{layout.incoming_folder(*JOB)}")
        fingerprint = upload(store, SPEC, [table], *JOB)
    status = _follow(store, fingerprint, pause=True)
    if status.state == "awaiting approval":
        _heading("Approving the deployment, as a user does on Airflow's page")
        JobRuns(settings, *JOB).approve(say)
        status = _follow(store, fingerprint, pause=False)
    view = describe_job(store, JOB, settings)
    if status.state != "deployed" or view.result is None:
        raise PlatformError(f"the model was not deployed: {status.message}")
    _heading("Predicting three flowers with plain tritonclient")
    _predict(settings, [rows[number] for number in _SHOWN], view.result["labels"])
    _sum_up(view)
    if stays:
        _heading("Where to look")
        print_addresses(state)
        facts([(f"this run: {name}", url) for name, url in sorted(status.links.items())])
        _show_next_steps(settings)
    out.print(f"\n[bold green]done[/] in {time.monotonic() - begun:.0f} s")


def _connect(state: State) -> Settings:
    """Make this process use the started platform, whatever its environment variables say."""
    if state.settings is None:
        raise PlatformError("the platform has stopped after its start: see `dmls doctor`")
    content = json.loads((state.folder / STATE_FILE).read_text())
    os.environ.update(content["environment"])
    return state.settings


def _follow(store: Store, fingerprint: str, *, pause: bool) -> Status:
    status = follow(
        store,
        *JOB,
        fingerprint=fingerprint,
        seconds=_RUN_SECONDS,
        show=print_step,
        pause_at=("awaiting approval",) if pause else (),
    )
    raise_for(status)
    return status


def _predict(settings: Settings, rows: list[list[str]], labels: list[str]) -> None:
    """Predict rows over both protocols and print the answers."""
    import numpy as np
    from rich.table import Table

    measures = np.array([row[:-1] for row in rows], dtype=np.float32)
    answers = ask(settings.triton_http, settings.triton_grpc, layout.model_name(*JOB), measures)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("FLOWER (cm)", "SPECIES", "HTTP", "gRPC"):
        table.add_column(heading, no_wrap=True)
    for row, http, grpc in zip(rows, answers.http, answers.grpc, strict=True):
        cells = [f"{labels[int(answer.argmax())]} {float(answer.max()):.4f}" for answer in (http, grpc)]
        table.add_row(" ".join(row[:-1]), row[-1], *cells)
    out.print(table)
    out.print("the predictions over HTTP and gRPC are identical")


def _sum_up(view: JobView) -> None:
    from dmls_core.spec import Spec

    result, spec = view.result or {}, Spec.from_json(view.spec or {})
    _heading("The model")
    parameters = ", ".join(
        f"{name}={result['best_params'][name]}" for name in sorted(spec.models[0].searched)
    )
    facts(
        [
            ("model", f"{describe_model(result)} on the {result['engine']} engine"),
            ("trials", f"{result['n_trials']:,}"),
            (f"holdout {result['metric']}", f"{result['score']:.4f}"),
            ("parameters", parameters),
            *(runner_facts(view.runner) if view.runner else []),
        ]
    )


def _show_next_steps(settings: Settings) -> None:
    secrets = state_folder() / STATE_FILE
    _heading("Next: look at the model")
    facts([("its page", f"{settings.airflow_url}/dmls/jobs/{JOB.team}/{JOB.name}")])
    _heading("Next: your own table, any CSV or Parquet file with a header")
    if not shutil.which("dmls"):
        facts([("use dmls here", f"source {Path(sys.executable).with_name('activate')}")])
    facts(
        [
            ("on a page", f"{settings.airflow_url}/dmls/submit"),
            ("", f"sign in as {settings.airflow_username}, with airflow_password of {secrets}"),
            ("or in a shell", "dmls init table.csv > spec.toml"),
            ("", "dmls submit spec.toml table.csv --team me --name mine --wait"),
            ("any S3 client", 'eval "$(dmls env)" sets its addresses and keys'),
        ]
    )


def _heading(title: str) -> None:
    out.print(f"\n[bold]{literal(title)}[/]")


class Answers(NamedTuple):
    """Probabilities per row and class, float32 of shape (n_rows, n_classes), by protocol."""

    http: NDArray[np.float32]
    grpc: NDArray[np.float32]


def ask(http: str, grpc: str, model: str, rows: NDArray[np.float32]) -> Answers:
    """Send the same float32 rows over HTTP and gRPC; raise ``ServingError`` if the two answers differ."""
    answers = Answers(_infer("http", http, model, rows), _infer("grpc", grpc, model, rows))
    if not np.array_equal(answers.http, answers.grpc):
        raise ServingError(f"{model} predicts over HTTP {answers.http} and over gRPC {answers.grpc}")
    return answers


def _infer(protocol: str, address: str, model: str, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    # The library has no types. It is imported by name, so that both protocols share this code.
    library: Any = import_module(f"tritonclient.{protocol}")
    client = library.InferenceServerClient(address)
    try:
        tensor = library.InferInput("input__0", list(rows.shape), "FP32")
        tensor.set_data_from_numpy(rows)
        answer: NDArray[np.float32] = client.infer(model, [tensor]).as_numpy("output__0")
    finally:
        client.close()
    return answer
