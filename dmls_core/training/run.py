"""The training run, from start to end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dmls_core.errors import DmlsError, PlatformError
from dmls_core.models import CATALOGUE
from dmls_core.store import layout, open_store, run_key
from dmls_core.training.engine_choice import choose_engine
from dmls_core.training.inputs import fetch_data, read_spec
from dmls_core.training.progress import Progress
from dmls_core.training.request import Job, TrainRequest
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

    Raises:
        UserError: the spec or the data is wrong; the same is in ``error.json``.
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
        folder.fail(failure)
        raise failure from error
    except DmlsError as error:
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
    model = CATALOGUE[spec.model]
    wanted = request.engine if request.engine != "auto" else spec.resources.engine
    engine, space = choose_engine(wanted, model, spec.models[0].hyperparameters)
    progress = Progress(folder, say, spec.n_trials)
    with progress.phase("load"):
        progress.enter(
            "loading", f"loading {len(request.data)} {'files' if request.data[1:] else 'file'} of data"
        )
        files = fetch_data(request.data, request.etags, scratch)
    key = request.run_key or run_key(spec.sha256, [file.etag for file in files])
    if not request.run_key and (result := folder.claim(key)):
        say(f"the run {key} is finished already")
        return result
    out = scratch / "out"
    # Threads that spin while they wait burn the CPUs that others wait for: on a busy machine XGBoost and
    # LightGBM took four times as long. OpenMP reads this when the first of them is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Both import for seconds: the validation starts first, and the two import side by side.
    with SideBySide(spec, [file.path for file in files], out / layout.VALIDATION) as validation:
        with progress.phase("load"), _absent("pandas") if engine == "cpu" else nullcontext():
            from dmls_core.training.work import work
        job = Job(request, spec, model, engine, space, key, files, out)
        return work(job, folder, progress, validation)


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
