"""Choose a candidate's scaling by a short benchmark while it is published.

Only the candidate is loaded again and called; the served version is not touched. The benchmark takes about
``_SECONDS``. On a slow or busy server, or without a clear difference, the simplest scaling stays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from dmls_core.data.encoder import Encoder
from dmls_core.errors import DmlsError, ServingError
from dmls_core.serving.deployment.deployment import Deployment
from dmls_core.serving.repository.options import (
    ScalingChoice,
    ScalingMeasurement,
    read_scaling_choice,
    write_scaling_choice,
)
from dmls_core.serving.triton.client import TritonClient
from dmls_core.serving.triton.model_config import CANDIDATE, SIMPLEST, Scaling, table_name
from dmls_core.serving.triton.tensors import table_tensors
from dmls_core.settings import ServingLimits

_SECONDS = 3.0
"""Time limit of the benchmark: afterwards nothing is started, and no load is waited for."""

_CLIENTS = 8
_REQUESTS = 2
"""Requests of a client's turn: one row to the forest, then one row to the table endpoint."""

WINDOWS, WINDOW_SECONDS = 3, 0.12
"""Time windows in which a scaling is called; each gives its own figure."""

MARGIN = 1.25
"""Factor by which a scaling's worst window must exceed the simplest scaling's best one."""

ALTERNATIVES = (Scaling(instances=1, batching=False), Scaling(instances=2, batching=True))
"""Scalings that are compared with the simplest, in this order."""

Measure = Callable[[Scaling, float], ScalingMeasurement]
"""Loads a scaling within a number of seconds, and measures it."""


def choose_scaling(deployment: Deployment, version: int) -> ScalingChoice:
    """Measure the staged version on the first server, and record the scaling to serve it with.

    If the candidate is another version or gone, nothing is measured: ``promote`` reports it. Nor is a
    candidate that took over the scaling of the served version, see ``Repository.stage``.

    Raises:
        ServingError: the repository could not be written.
    """
    repository, model = deployment.repository, deployment.model
    with repository.lock(model):
        measurable = repository.has_table(model + CANDIDATE) and not repository.shares(model, version)
        if repository.staged(model) != version or not measurable:
            return read_scaling_choice(repository.store, model, version)
        client = deployment.servers[0]
        golden = repository.read(model, version, "golden.json")
        encoder = Encoder.from_json(repository.read(model, version, "encoder.json"))
        candidate = model + CANDIDATE
        row = np.asarray(golden["encoded"][:1], dtype=np.float32)
        first = {name: values[:1] for name, values in golden["columns"].items()}

        def measure(scaling: Scaling, seconds: float) -> ScalingMeasurement:
            table = table_tensors(encoder, first)

            def turn(caller: TritonClient) -> None:
                caller.infer(candidate, row)
                caller.infer_tensors(table_name(candidate), table)

            repository.check_copy(model, version, CANDIDATE)
            repository.configure_candidate(model, version, scaling)
            loader = client.again(timeout=seconds)
            try:
                loader.load(table_name(candidate))
                loader.load(candidate)
            finally:
                loader.close()
            return ScalingMeasurement(scaling, _rates(client, turn))

        # Each instance holds a copy of the model.
        limit = ServingLimits.from_environment().checkpoint_bytes
        size = repository.size(model, version)
        choice = compare_scalings(
            measure, [other for other in ALTERNATIVES if other.instances * size <= limit]
        )
        write_scaling_choice(repository.store, model, version, choice, repository.versions(model))
        repository.configure_candidate(model, version, choice.scaling)
        return choice


def compare_scalings(
    measure: Measure, alternatives: Sequence[Scaling], seconds: float = _SECONDS
) -> ScalingChoice:
    """Return the first alternative that is clearly better than the simplest scaling, or the simplest.

    Clearly better means: in its worst window it answers ``MARGIN`` times as many requests as the simplest
    scaling in its best one, and still does when the simplest is measured once more afterwards. Nothing is
    started after ``seconds``.
    """
    end = time.monotonic() + seconds
    measurements: list[ScalingMeasurement] = []

    def measured(scaling: Scaling) -> ScalingMeasurement:
        left = end - time.monotonic()
        try:
            if left > 0:
                measurements.append(measure(scaling, left))
                return measurements[-1]
        except DmlsError:
            if time.monotonic() < end:
                raise
        raise ServingError("the time limit was reached")

    reason = f"no other scaling answered {MARGIN:g} times as many requests"
    try:
        simplest = measured(SIMPLEST)
        for alternative in alternatives:
            if not _clearly_better(better := measured(alternative), simplest):
                continue
            if _clearly_better(better, measured(SIMPLEST)):
                more = min(better.rates) / max(simplest.rates)
                reason = f"it answered {more:.2g} times as many requests"
                return ScalingChoice(alternative, reason, tuple(measurements))
    except DmlsError as error:
        # Whether the candidate may be served is decided by its golden rows, in ``promote``.
        reason = f"the benchmark ended before another scaling proved better: {error}"
    return ScalingChoice(SIMPLEST, reason, tuple(measurements))


def _clearly_better(one: ScalingMeasurement, other: ScalingMeasurement) -> bool:
    return min(one.rates) > MARGIN * max(other.rates)


def _rates(client: TritonClient, turn: Callable[[TritonClient], object]) -> tuple[float, ...]:
    """Have several clients take turns at once; return their requests per second in each window."""
    answered: list[float] = []
    failures: list[ServingError] = []
    began = [0.0]

    def start() -> None:
        began[0] = time.monotonic()

    ready = threading.Barrier(_CLIENTS, action=start)

    def work() -> None:
        caller = client.again(timeout=_SECONDS)
        try:
            turn(caller)  # connects
            ready.wait()
            while (now := time.monotonic()) < began[0] + WINDOWS * WINDOW_SECONDS:
                answered.append(now)
                turn(caller)
        except ServingError as error:
            failures.append(error)
            ready.abort()
        except threading.BrokenBarrierError:
            pass  # another client failed
        finally:
            caller.close()

    threads = [threading.Thread(target=work) for _ in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    windows = np.floor((np.asarray(answered) - began[0]) / WINDOW_SECONDS).astype(int)
    turns = np.bincount(windows, minlength=WINDOWS)[:WINDOWS]
    return tuple(np.round(turns * _REQUESTS / WINDOW_SECONDS, 1).tolist())
