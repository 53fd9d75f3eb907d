"""``python -m dmls_core.data.expectations --spec FILE --data FILE... --out DIR``.

Writes ``validation.json`` and ``data_docs/index.html`` into DIR. The exit code is 0 whenever that was done,
whether the data is as expected or not.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import signal
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path

from dmls_core.data.limits import DataLimits
from dmls_core.data.validation import Outcome
from dmls_core.errors import DataError
from dmls_core.spec import Spec

_NICENESS = 10
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Look at the data."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(prog="python -m dmls_core.data.expectations")
    parser.add_argument("--spec", type=Path, required=True, help="the spec's canonical JSON")
    parser.add_argument("--data", type=Path, required=True, nargs="+", help="the data files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--parent", type=int, help="end with the process of this id, which started this one")
    arguments = parser.parse_args()
    os.nice(_NICENESS)
    if arguments.parent and not _end_with(arguments.parent):
        sys.exit("the process that started this one has ended")
    warnings.simplefilter("ignore")
    spec = Spec.from_json(json.loads(arguments.spec.read_bytes()), file=str(arguments.spec))
    arguments.out.mkdir(parents=True, exist_ok=True)
    outcomes = _outcomes(spec, arguments.data, arguments.out / "data_docs")
    report = {
        "schema": 1,
        "success": all(outcome.success for outcome in outcomes),
        "expectations": list(map(asdict, outcomes)),
        "seconds": round(time.perf_counter() - started, 3),
    }
    partial = arguments.out / "validation.json.part"
    partial.write_text(json.dumps(report, indent=1, ensure_ascii=False))
    partial.replace(arguments.out / "validation.json")


def _outcomes(spec: Spec, data: list[Path], docs: Path) -> list[Outcome]:
    from dmls_core.data.expectations.frame import read_frame

    try:
        frame = read_frame(spec, data, DataLimits.from_environment())
    except DataError as error:
        return [
            Outcome(
                column=issue.key,
                expectation="readable",
                success=False,
                observed=issue.message,
                expected="the data can be read",
                message=str(issue),
            )
            for issue in error.issues
        ]
    gc.disable()  # the import below makes no garbage, and collecting none of it takes a fifth of its time
    from dmls_core.data.expectations.plan import plan
    from dmls_core.data.expectations.run import run

    gc.enable()
    expectations = plan(spec, frame.roles, frame.facts, frame.missing)
    return run(frame.data, expectations, docs)


def _end_with(parent: int) -> bool:
    """Have the kernel end this process when its parent ends; False if that was before."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


if __name__ == "__main__":
    main()
