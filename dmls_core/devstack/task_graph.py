"""Run steps that depend on one another, in parallel where possible."""

from __future__ import annotations

import graphlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from dmls_core.errors import PlatformError

Progress = Callable[[str, str, float], None]
"""Called for each step with its name, ``starting``, ``ready`` or ``failed``, and its seconds so far."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step; the event that its action gets is set when another step has failed."""

    name: str
    action: Callable[[threading.Event], None]
    after: tuple[str, ...] = ()


def run_steps(steps: Sequence[Step], progress: Progress) -> None:
    """Run all steps; if one fails, stop the others and raise ``PlatformError``."""
    by_name = {step.name: step for step in steps}
    order = graphlib.TopologicalSorter({step.name: step.after for step in steps})
    order.prepare()
    given_up = threading.Event()
    running: dict[Future[None], str] = {}
    first: BaseException | None = None
    with ThreadPoolExecutor(len(steps)) as pool:
        try:
            while running or (order.is_active() and first is None):
                if first is None:
                    for name in order.get_ready():
                        running[pool.submit(_run, by_name[name], given_up, progress)] = name
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    name = running.pop(future)
                    error = future.exception()
                    if error is None:
                        order.done(name)
                    elif first is None:
                        first = error
                        given_up.set()
        finally:
            # Also on Ctrl-C: the pool waits for its threads.
            given_up.set()
    if isinstance(first, PlatformError):
        raise first
    if first is not None:
        raise PlatformError(f"a step failed unexpectedly: {first!r}") from first


def _run(step: Step, given_up: threading.Event, progress: Progress) -> None:
    begun = time.monotonic()
    progress(step.name, "starting", 0.0)
    try:
        step.action(given_up)
    except BaseException:
        progress(step.name, "failed", time.monotonic() - begun)
        raise
    progress(step.name, "ready", time.monotonic() - begun)
