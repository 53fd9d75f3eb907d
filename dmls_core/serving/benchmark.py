"""Measure, at publish time, whether a candidate answers more requests with another setting than the simplest.

The candidate alone is asked and loaded again, beside what is served. It takes about ``SECONDS``: a server
that is slow or busy ends with the simplest setting, and so does one on which the difference is not clear.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from dmls_core.data.encoder import Encoder
from dmls_core.errors import DmlsError, ServingError
from dmls_core.serving.client import TritonClient
from dmls_core.serving.deployment import Servers, each
from dmls_core.serving.model_config import CANDIDATE, CHECKPOINT_FILE, SIMPLEST, Scaling, table_name
from dmls_core.serving.options import Choice, Measured, choice_of, note_choice
from dmls_core.serving.repository import Repository
from dmls_core.serving.verification import table_tensors
from dmls_core.settings import ServingLimits

SECONDS = 3.0
"""Nothing more is begun after it, and no load of a setting is waited for any longer."""

CLIENTS = 8
REQUESTS = 2
"""A client asks the forest and then the table endpoint for one row, and so on in turns."""

PARTS, PART_SECONDS = 3, 0.12
"""A setting is asked for so many parts of time, each of which gives a figure of its own."""

MARGIN = 1.25
"""How many times the simplest setting's best part another one's worst part must be."""

OTHERS = (Scaling(instances=1, batching=False), Scaling(instances=2, batching=True))
"""What is tried beside the simplest, in this order."""

Ask = Callable[[Scaling, float], Measured]
"""Loads a setting within so many seconds, and measures it."""


def measure(repository: Repository, servers: Servers, model: str, version: int) -> Choice:
    """Measure the candidate, and note for its version which setting it is to be served with.

    Where the candidate is another version, or gone, nothing is measured: ``go_live`` tells.

    Args:
        repository: where Triton reads models from.
        servers: the Triton servers; the first one is asked.
        model: ``<team>.<job>``.
        version: what ``stage`` returned.

    Raises:
        ServingError: the repository could not be written.
    """
    with repository.lock(model):
        if repository.staged(model) != version:
            return choice_of(repository.store, model, version)
        client = each(servers)[0]
        golden = repository.read(model, version, "golden.json")
        encoder = Encoder.from_json(repository.read(model, version, "encoder.json"))
        candidate = model + CANDIDATE
        row = np.asarray(golden["encoded"][:1], dtype=np.float32)
        first = {name: values[:1] for name, values in golden["columns"].items()}

        def ask(scaling: Scaling, seconds: float) -> Measured:
            table = table_tensors(encoder, first)

            def turn(own: TritonClient) -> None:
                own.infer(candidate, row)
                own.infer_tensors(table_name(candidate), table)

            repository.configure_candidate(model, version, scaling)
            loader = client.again(timeout=seconds)
            try:
                loader.load(table_name(candidate))
                loader.load(candidate)
            finally:
                loader.close()
            return Measured(scaling, _rates(client, turn))

        # Each instance of a forest holds a copy of it.
        limit = ServingLimits.from_environment().checkpoint_bytes
        info = repository.store.head(f"{model}/{version}/{CHECKPOINT_FILE}")
        size = info.size if info else 0
        choice = choose(ask, [other for other in OTHERS if other.instances * size <= limit])
        note_choice(repository.store, model, version, choice, repository.versions(model))
        repository.configure_candidate(model, version, choice.scaling)
        return choice


def choose(ask: Ask, others: Sequence[Scaling], seconds: float = SECONDS) -> Choice:
    """Take the first of some settings that is clearly better than the simplest, or the simplest.

    Clearly better is one that answers, in its worst part of the time, ``MARGIN`` times as many requests as
    the simplest in its best; and still does when the simplest is measured once more after it.

    Args:
        ask: measures a setting.
        others: what is tried beside the simplest.
        seconds: nothing more is begun after so many.
    """
    end = time.monotonic() + seconds
    found: list[Measured] = []

    def asked(scaling: Scaling) -> Measured:
        left = end - time.monotonic()
        try:
            if left > 0:
                found.append(ask(scaling, left))
                return found[-1]
        except DmlsError:
            if time.monotonic() < end:
                raise
        raise ServingError("the time was up")

    reason = f"nothing else answered {MARGIN:g} times as many requests"
    try:
        simplest = asked(SIMPLEST)
        for other in others:
            if not _clearly_better(better := asked(other), simplest):
                continue
            if _clearly_better(better, asked(SIMPLEST)):
                more = min(better.rates) / max(simplest.rates)
                return Choice(other, f"it answered {more:.2g} times as many requests", tuple(found))
    except DmlsError as error:
        # Whether the candidate may be served is found out by its golden rows, and told there.
        reason = f"nothing else proved better before the measurement ended: {error}"
    return Choice(SIMPLEST, reason, tuple(found))


def _clearly_better(one: Measured, other: Measured) -> bool:
    return min(one.rates) > MARGIN * max(other.rates)


def _rates(client: TritonClient, turn: Callable[[TritonClient], object]) -> tuple[float, ...]:
    """Have several clients take turns at once; return their requests per second in each part of the time.

    Raises:
        ServingError: a request failed.
    """
    answered: list[float] = []
    failures: list[ServingError] = []
    began = [0.0]

    def start() -> None:
        began[0] = time.monotonic()

    ready = threading.Barrier(CLIENTS, action=start)

    def work() -> None:
        own = client.again(timeout=SECONDS)
        try:
            turn(own)  # connects
            ready.wait()
            while (now := time.monotonic()) < began[0] + PARTS * PART_SECONDS:
                answered.append(now)
                turn(own)
        except ServingError as error:
            failures.append(error)
            ready.abort()
        except threading.BrokenBarrierError:
            pass  # another one failed
        finally:
            own.close()

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    parts = np.floor((np.asarray(answered) - began[0]) / PART_SECONDS).astype(int)
    turns = np.bincount(parts, minlength=PARTS)[:PARTS]
    return tuple(np.round(turns * REQUESTS / PART_SECONDS, 1).tolist())
