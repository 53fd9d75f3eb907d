"""Restart SeaweedFS if it still refuses writes after its full disk has room again, or lists nothing.

SeaweedFS spreads folders over several databases. One that could not write to the full disk refuses writes,
or answers no listing, until the server starts again, while other folders work.

``python -m dmls_core.devstack.store_guard ROOT FOLDER [REQUEST]`` runs next to the server, whose data is in
FOLDER. In an embedded platform it ends the server's processes, which the supervisor starts again. Elsewhere
it creates the file REQUEST, at which ``images/s3/serve.sh`` ends.
"""

from __future__ import annotations

import argparse
import logging
import math
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dmls_core.devstack.processes import end_marked
from dmls_core.errors import StoreError
from dmls_core.settings import ProcessSettings
from dmls_core.store import Store, layout, open_store
from dmls_core.store.probe import FOLDERS, refusal, refusals, unlisted

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0

_ROOM = 0.02
"""Free share of the disk from which SeaweedFS must write: below 1 % it refuses to."""

PATIENCE = 15.0
"""Seconds of refused requests, with room on the disk, before the first restart."""

_SILENCE = 60.0
"""The same for a server that answers nothing: it may be starting."""

FIRST_PAUSE = 30.0
"""Seconds between the first restart and the next; they double."""

RESTARTS = 5
"""Restarts without any success, after which the reason must be another one."""


class StoreGuard:
    """Looks at a store; ``restart`` has its server start again."""

    def __init__(self, store: Store, folder: Path, restart: Callable[[], None]) -> None:
        self._store, self._folder, self._restart = store, folder, restart
        self._suspicious = True
        self._next_folder = 0
        self._restarts = 0
        self._due: float | None = None

    def look(self) -> None:
        """Probe one folder after the other, or all of them if one refuses or the disk was full.

        Restart the server if requests have failed for a while, although the disk has room.
        """
        usage = shutil.disk_usage(self._folder)
        if usage.free < _ROOM * usage.total:
            self._suspicious, self._due = True, None
            return
        if not self._suspicious:
            self._next_folder = (self._next_folder + 1) % FOLDERS
            self._suspicious = bool(refusal(self._store, self._next_folder) or unlisted(self._store))
        if not self._suspicious:
            return
        if not self._answers():
            self._act("the S3 server does not answer", _SILENCE)
        elif failed := [*refusals(self._store), *unlisted(self._store)]:
            what = f"{len(failed)} requests to the S3 server fail although its disk has room ({failed[0]})"
            self._act(what, PATIENCE)
        else:
            self._suspicious, self._due, self._restarts = False, None, 0

    def _answers(self) -> bool:
        """Return whether the server can be read: the supervisor starts one that has ended."""
        try:
            list(self._store.list(layout.PROBES))
        except StoreError:
            return False
        return True

    def _act(self, what: str, patience: float) -> None:
        now = time.monotonic()
        if self._due is None or not self._restarts:
            self._due = min(self._due or math.inf, now + patience)
        if now < self._due or self._restarts > RESTARTS:
            return
        self._due = now + FIRST_PAUSE * 2**self._restarts
        self._restarts += 1
        if self._restarts > RESTARTS:
            log.error("%s, also after %s restarts: see its log", what, RESTARTS)
            return
        log.warning("%s: restarting it", what)
        try:
            self._restart()
        except OSError as error:
            log.error("could not restart the S3 server: restart it manually (%s)", error)


def main(arguments: Sequence[str]) -> None:
    """Look at the store until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("folder", type=Path)
    parser.add_argument("request", nargs="?", default="")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    platform_id = ProcessSettings.from_environment().platform_id

    def restart() -> None:
        if options.request:
            Path(options.request).touch()
        else:
            end_marked(platform_id, "s3")

    guard = StoreGuard(open_store(options.root, interactive=True), options.folder, restart)
    while True:
        try:
            guard.look()
        except Exception:
            # It must go on, whatever a store or a disk raises.
            log.exception("the store could not be probed; it is probed again")
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
