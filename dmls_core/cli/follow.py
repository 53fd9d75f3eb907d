"""Drop a submission, and follow it by the answers that appear beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dmls_core.errors import PlatformError

if TYPE_CHECKING:
    from dmls_core.intake import Status
    from dmls_core.store import Store

PAUSE = 0.5
"""Seconds between two looks at ``_status.json``."""

ENDED = ("rejected", "deployed", "failed")


def drop(store: Store, spec: Path, data: Sequence[Path], team: str, name: str) -> str:
    """Drop a submission as any S3 client would, and return the fingerprint that its answer will carry.

    Raises:
        SubmissionError: a name is unfit or a file is missing; nothing was dropped then.
    """
    from dmls_core.intake import group_submissions, submit
    from dmls_core.store import layout

    submit(store, spec, data, team, name)
    listing = store.list(layout.incoming_folder(team, name))
    return next(found.fingerprint for found in group_submissions(listing) if found.job == name)


def follow(
    store: Store,
    team: str,
    name: str,
    *,
    fingerprint: str,
    seconds: float,
    show: Callable[[Status], None],
    pause_at: tuple[str, ...] = ("awaiting approval",),
) -> Status:
    """Wait until a submission's run has ended or waits for a person, and return the last answer.

    Args:
        store: where it was dropped.
        team: the job's team.
        name: the job's name.
        fingerprint: of the files that were dropped; older answers are passed over.
        seconds: how long to wait at most.
        show: called with every new answer.
        pause_at: states that end the wait besides the last ones.

    Raises:
        PlatformError: it takes longer than ``seconds``.
    """
    from dmls_core.intake import read_status

    end = time.monotonic() + seconds
    shown: tuple[str, str] | None = None
    while True:
        status = read_status(store, team, name)
        if status and status.fingerprint == fingerprint:
            answered = status.state == "awaiting approval" and status.state not in pause_at
            if (status.state, status.message) != shown and not answered:
                shown = (status.state, status.message)
                show(status)
            if status.state in (*ENDED, *pause_at) or ended_undeployed(store, team, name, status):
                return status
        if time.monotonic() > end:
            state = f"{status.state}: {status.message}" if status else "no answer beside the drop"
            raise PlatformError(f"{team}/{name} has not ended after {seconds:.0f} s ({state})")
        time.sleep(PAUSE)


def ended_undeployed(store: Store, team: str, name: str, status: Status) -> bool:
    """Return whether a run has ended without a deployment, by rule or because a person declined it."""
    from dmls_core.store import layout

    if status.state != "accepted" or not status.run_folder_key:
        return False
    return store.head(layout.run_folder(team, name, status.run_folder_key) + layout.RESULT) is not None
