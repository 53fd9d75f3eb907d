"""What ``dmls train`` runs."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from types import FrameType

from dmls_core.training.progress import told
from dmls_core.training.request import EngineChoice, TrainRequest
from dmls_core.training.run import train


def run_train(
    spec: str,
    data: Sequence[str],
    out: str,
    *,
    team: str = "local",
    name: str = "model",
    run_key: str = "",
    engine: EngineChoice = "auto",
    etags: Sequence[str] = (),
    since: datetime | None = None,
    until: datetime | None = None,
    champion: str = "",
    champion_version: int = 0,
    worker: int = 0,
    as_json: bool = False,
) -> None:
    """Train as ``TrainRequest`` says; the log goes to stderr, the result to stdout.

    Args:
        spec: path or URL of the spec.
        data: paths or URLs of the data files.
        out: folder or URL to write to.
        team: team of the job.
        name: name of the job.
        run_key: key of the run; made from spec and data if empty.
        engine: overrules the spec's unless ``auto``.
        etags: what the data's ETags must be.
        since: leaves out rows before it.
        until: leaves out rows at it and later.
        champion: folder or URL of the champion's run.
        champion_version: the champion's version in the registry.
        worker: which of the run's trainers this is.
        as_json: print ``result.json`` rather than a summary.

    Raises:
        UserError: the spec or the data is wrong.
        PlatformError: a service or the machine failed.
    """
    # An orderly exit: the scratch folder goes, and so does the validation's process.
    signal.signal(signal.SIGTERM, _exit)
    request = TrainRequest(
        spec,
        tuple(data),
        out,
        team,
        name,
        run_key,
        engine,
        tuple(etags),
        since,
        until,
        champion,
        champion_version,
        worker,
    )
    result = train(request)
    if as_json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
        return
    if result["status"] == "helped":
        sys.stdout.write(f"worker {worker} is done; worker 0 goes on\n")
        return
    sys.stdout.write(
        f"{result['model']} on {result['engine']}: {result['metric']} {told(result['score'])} on "
        f"{result['data']['holdout_rows']} rows held out, {told(result['cv_score'])} in the search, "
        f"{result['n_trials']} trials, {result['seconds']['total']:.1f} s\n{out}\n"
    )


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
