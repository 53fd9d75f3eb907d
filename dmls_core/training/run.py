"""Start a training run: inputs, data validation in the background, then the pipeline."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from dmls_core.errors import DataError, DmlsError, PlatformError, UserError
from dmls_core.hardware import return_large_blocks
from dmls_core.html.formats import counted, describe_model
from dmls_core.models import CATALOGUE
from dmls_core.settings import STUDY_VARIABLE
from dmls_core.spec import Spec
from dmls_core.store import layout, open_store, run_key
from dmls_core.training.background_validation import BackgroundValidation
from dmls_core.training.known_hashes import KnownHashes
from dmls_core.training.progress import Progress, format_score
from dmls_core.training.request import (
    RequestedModel,
    TrainingJob,
    TrainRequest,
    choose_engine,
    convert_data,
    cut_data,
    fetch_data,
    read_spec,
)
from dmls_core.training.run_folder import RunFolder
from dmls_core.visible_text import visible_lines


def _to_stderr(line: str) -> None:
    """Print a line for people; stdout is for results."""
    print(visible_lines(line), file=sys.stderr, flush=True)  # noqa: T201 - the trainer's log


def train(request: TrainRequest, *, progress: Callable[[str], None] = _to_stderr) -> dict[str, Any]:
    """Train, tune, check and export a model; return ``result.json``.

    A killed run can be started again: it reads ended trials back, and returns the result of a finished run.
    ``progress`` takes each line of the log.

    Returns:
        ``result.json``; for a worker other than 0, a short record with the status ``helped``.

    Raises:
        UserError: the spec or the data is wrong; worker 0 also writes it to ``error.json``.
        PlatformError: a service or the machine failed; likewise.
    """
    folder = RunFolder(open_store(request.out))
    try:
        with TemporaryDirectory(prefix="dmls-train-") as scratch:
            return _train(request, folder, Path(scratch), progress)
    except (MemoryError, OSError) as error:
        failure = PlatformError(
            describe_full_memory(error)
            if isinstance(error, MemoryError)
            else f"the trainer's machine failed: {error}"
        )
        if request.leads:
            folder.fail(failure)
        raise failure from error
    except DmlsError as error:
        if request.leads:
            folder.fail(error)
        raise


def describe_full_memory(error: MemoryError) -> str:
    """Return which memory is full, and what helps."""
    # XGBoost adds a stack trace.
    first = (str(error).strip().splitlines() or [""])[0]
    reason = f" ({first})" if first else ""
    if "cuda" in first.lower() or "GPU" in first:
        return f'the GPU ran out of memory{reason}: train on one with more memory, or set engine = "cpu"'
    return f"the trainer ran out of memory{reason}: raise [resources] memory"


def _train(
    request: TrainRequest, folder: RunFolder, scratch: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    # With a known run key, a finished run needs no data.
    if request.run_key and (result := folder.claim(request.run_key)):
        say(f"the run {request.run_key} is finished already")
        return result
    spec = read_spec(request.spec)
    models = _requested_models(request, spec)
    study = _study(request, spec, say)
    progress = Progress(folder, say, spec.n_trials, leads=request.leads)
    with progress.phase("load"):
        progress.enter(
            "loading", f"loading {len(request.data)} {'files' if request.data[1:] else 'file'} of data"
        )
        files = fetch_data(request.data, request.etags, scratch, KnownHashes.of(request.team))
        files = convert_data(files, spec, scratch / "converted")
        if request.until and spec.columns.time:
            files = cut_data(files, spec, request.since, request.until, scratch / "cut")
    interval = (request.since or request.until, request.until) if request.until else None
    key = request.run_key or run_key(spec.sha256, [file.etag for file in files], interval)
    if not request.run_key and (result := folder.claim(key)):
        say(f"the run {key} is finished already")
        return result
    out = scratch / "out"
    # Threads that wait actively slow the others down: on a busy machine XGBoost and LightGBM took four times
    # as long. OpenMP reads this when the first of them is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Polars keeps freed memory for a while, until after the matrix is copied: on 500,000 x 54 rows that took
    # three times the matrix instead of two and a half, and saved no time. Overwrite a value that a parent
    # process with Polars has passed on.
    os.environ["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:0,muzzy_decay_ms:0"
    return_large_blocks()
    # The validation and this process both import for seconds: start the validation first.
    checked = BackgroundValidation(spec, [file.path for file in files], out / layout.VALIDATION)
    with checked if request.leads else nullcontext() as validation:
        on_cpu = all(requested.engine == "cpu" for requested in models)
        with progress.phase("load"), _absent("pandas") if on_cpu else nullcontext():
            from dmls_core.training.pipeline import join_search, run_pipeline
        job = TrainingJob(request, spec, models, key, files, out, study)
        if validation is None:
            return join_search(job, folder, progress)
        try:
            return run_pipeline(job, folder, progress, validation)
        except DataError:
            if validation.failed():
                folder.upload(out, layout.VALIDATION)  # the Data Docs show what is wrong
            raise


def _requested_models(request: TrainRequest, spec: Spec) -> tuple[RequestedModel, ...]:
    device = request.engine if request.engine != "auto" else spec.resources.engine
    if spec.resources.nodes > 1 and device == "auto":
        device = "cpu"  # nodes have no GPUs
    models, weighted = [], spec.columns.weight is not None
    for asked in spec.models:
        model = CATALOGUE[asked.name]
        chosen = choose_engine(device, model, asked.hyperparameters, weighted=weighted)
        models.append(RequestedModel(model, *chosen))
    return tuple(models)


def _study(request: TrainRequest, spec: Spec, say: Callable[[str], None]) -> str:
    """Return the URL of the database with the shared study of this run's trainers; empty without one.

    Raise ``UserError`` for workers other than 0 if there is no shared search.
    """
    url = os.environ.get(STUDY_VARIABLE, "")
    if spec.search.max_workers > 1 and url:
        return url
    if not request.leads:
        raise UserError(
            f"worker {request.worker} has no search to join: [search] workers is {spec.search.workers}, and "
            f"{STUDY_VARIABLE} is {'set' if url else 'not set'}"
        )
    if spec.search.max_workers > 1:
        say(f"searching alone: without {STUDY_VARIABLE}, trainers cannot share a search")
    return ""


@contextmanager
def _absent(package: str) -> Iterator[None]:
    """Hide an optional package while other packages are imported.

    scikit-learn, XGBoost and LightGBM import pandas (0.5 CPU seconds) to support data frames, which training
    does not use. cuML needs it.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


def run_train(request: TrainRequest, *, as_json: bool = False) -> None:
    """Train; print the log to stderr, and ``result.json`` (``as_json``) or a summary to stdout.

    Raises:
        UserError: the spec or the data is wrong.
        PlatformError: a service or the machine failed.
    """
    # Exit in order: remove the scratch folder and end the validation process.
    signal.signal(signal.SIGTERM, _exit)
    result = train(request)
    if as_json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
        return
    if result["status"] == "helped":
        sys.stdout.write(f"worker {request.worker} is done; worker 0 continues\n")
        return
    sys.stdout.write(
        f"{describe_model(result)} on {result['engine']}: {result['metric']} {format_score(result['score'])} "
        f"on {counted(result['data']['holdout_rows'], 'row')} held out, "
        f"{format_score(result['cv_score'])} in the search, {counted(result['n_trials'], 'trial')}, "
        f"{result['seconds']['total']:.1f} s\n{request.out}\n"
    )


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
