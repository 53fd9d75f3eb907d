"""The training run, from start to end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dmls_core.errors import DmlsError, PlatformError, UserError
from dmls_core.hardware import return_large_blocks
from dmls_core.models import CATALOGUE
from dmls_core.settings import STUDY_VARIABLE
from dmls_core.spec import Spec
from dmls_core.store import layout, open_store, run_key
from dmls_core.training.engine_choice import choose_engine
from dmls_core.training.inputs import cut_data, fetch_data, read_spec
from dmls_core.training.progress import Progress
from dmls_core.training.request import Contender, Job, TrainRequest
from dmls_core.training.run_folder import RunFolder
from dmls_core.training.validation import SideBySide


def to_stderr(line: str) -> None:
    """Print a line for people; stdout is for results."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the trainer's log


def train(request: TrainRequest, *, progress: Callable[[str], None] = to_stderr) -> dict[str, Any]:
    """Train, tune, check and export a model; return ``result.json``.

    The run may be killed at any moment and started again: finished trials are read back, and a finished
    run is returned as it is.

    Args:
        request: what to do.
        progress: takes each line of the log.

    Returns:
        ``result.json``; of a helper in a shared search, which leaves while the leader goes on, what
        ``helped`` says.

    Raises:
        UserError: the spec or the data is wrong; the same is in ``error.json``, unless this is a helper.
        PlatformError: a service or the machine failed; likewise.
    """
    folder = RunFolder(open_store(request.out))
    try:
        with TemporaryDirectory(prefix="dmls-train-") as scratch:
            return _train(request, folder, Path(scratch), progress)
    except (MemoryError, OSError) as error:
        failure = PlatformError(
            f"the trainer ran out of memory ({error}): raise [resources] memory"
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


def _train(
    request: TrainRequest, folder: RunFolder, scratch: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    # What is known before the data is here saves fetching it for a run that is finished.
    if request.run_key and (result := folder.claim(request.run_key)):
        say(f"the run {request.run_key} is finished already")
        return result
    spec = read_spec(request.spec)
    contenders = _contenders(request, spec)
    study = _study(request, spec, say)
    progress = Progress(folder, say, spec.n_trials, leads=request.leads)
    with progress.phase("load"):
        progress.enter(
            "loading", f"loading {len(request.data)} {'files' if request.data[1:] else 'file'} of data"
        )
        files = fetch_data(request.data, request.etags, scratch)
        if request.until and spec.columns.time:
            files = cut_data(files, spec, request.since, request.until, scratch / "cut")
    interval = (request.since or request.until, request.until) if request.until else None
    key = request.run_key or run_key(spec.sha256, [file.etag for file in files], interval)
    if not request.run_key and (result := folder.claim(key)):
        say(f"the run {key} is finished already")
        return result
    out = scratch / "out"
    # Threads that spin while they wait burn the CPUs that others wait for: on a busy machine XGBoost and
    # LightGBM took four times as long. OpenMP reads this when the first of them is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Polars keeps what it has freed for a while, by then the matrix is copied beside it: on 500,000 x 54 rows
    # three times the matrix in all instead of two and a half, for no time gained. Said even where it is said
    # already: a process that has imported Polars hands that on to those that it starts.
    os.environ["_RJEM_MALLOC_CONF"] = "dirty_decay_ms:0,muzzy_decay_ms:0"
    return_large_blocks()
    # Both import for seconds: the validation starts first, and the two import side by side.
    checked = SideBySide(spec, [file.path for file in files], out / layout.VALIDATION)
    with checked if request.leads else nullcontext() as validation:
        on_cpu = all(contender.engine == "cpu" for contender in contenders)
        with progress.phase("load"), _absent("pandas") if on_cpu else nullcontext():
            from dmls_core.training.work import help_out, work
        job = Job(request, spec, contenders, key, files, out, study)
        if validation is None:
            return help_out(job, folder, progress)
        return work(job, folder, progress, validation)


def _contenders(request: TrainRequest, spec: Spec) -> tuple[Contender, ...]:
    wanted = request.engine if request.engine != "auto" else spec.resources.engine
    contenders = []
    for asked in spec.models:
        model = CATALOGUE[asked.name]
        contenders.append(Contender(model, *choose_engine(wanted, model, asked.hyperparameters)))
    return tuple(contenders)


def _study(request: TrainRequest, spec: Spec, say: Callable[[str], None]) -> str:
    """Return the address of the database that this run's trainers share a study over; empty: none.

    Raises:
        UserError: this is a helper, and there is nothing to help with.
    """
    url = os.environ.get(STUDY_VARIABLE, "")
    if spec.search.workers > 1 and url:
        return url
    if not request.leads:
        raise UserError(
            f"worker {request.worker} has nobody to help: [search] workers is {spec.search.workers}, and "
            f"{STUDY_VARIABLE} is {'set' if url else 'not set'}"
        )
    if spec.search.workers > 1:
        say(f"searching alone: without {STUDY_VARIABLE}, trainers cannot share a search")
    return ""


@contextmanager
def _absent(package: str) -> Iterator[None]:
    """Make an optional package look as if it were not installed, while others are imported.

    scikit-learn, XGBoost and LightGBM import pandas (0.5 CPU seconds) for data frames; they get none. cuML
    does need it.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]
