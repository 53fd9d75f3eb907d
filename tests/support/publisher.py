"""A publisher in a process of its own that kills itself, as ``kill -9`` does, before a given step.

Orders are read from stdin, one a line: JSON with ``repository``, ``http``, ``grpc``, ``model``, ``folder``
and ``step``; for each the exit status is printed. A step is what is done to the store or to Triton:
``put lab.x/2/dmls.json``, ``load lab.x``, ``infer lab.x.candidate``, ``finish``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dmls_core.serving import Deployment, Repository, TritonClient, choose_scaling
from dmls_core.store.base import Store


def dying(step: str, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call``, which kills this process instead where ``step`` names it."""

    def wrapped(*args: Any, **options: Any) -> Any:
        if f"{kind} {args[0] if args else ''}".strip() == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)

    return wrapped


def publish(order: dict[str, str]) -> None:
    repository = Repository(order["repository"])
    client = TritonClient(order["http"], order["grpc"])
    for target, names in (
        (repository.store, ("put", "upload", "delete")),
        (client, ("load", "unload", "infer")),
    ):
        assert isinstance(target, Store | TritonClient)
        for name in names:
            setattr(target, name, dying(order["step"], name, getattr(target, name)))
    finish = dying(order["step"], "finish", lambda: None)
    model = order["model"]
    version = Deployment(repository, client, model).stage(Path(order["folder"])).version
    if "measured" in order["step"]:
        choose_scaling(Deployment(repository, client, model), version)
    Deployment(repository, client, model).promote(version, finish=lambda *_: finish())


if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            publish(json.loads(line))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
