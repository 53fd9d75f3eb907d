"""The trigger that watches for files to score.

Airflow's database stores its class path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from airflow.triggers.base import TriggerEvent

from dmls_core.airflow.intake.submission_trigger import SubmissionTrigger
from dmls_core.airflow.settings import airflow_settings, open_with_connection
from dmls_core.store import ObjectInfo, layout
from dmls_core.visible_text import visible

log = logging.getLogger(__name__)

_MOST_NAMED = 10
"""Names of files that a warning has at most."""


class ScoringTrigger(SubmissionTrigger):
    """Fire when a file is written to ``scoring/``; after a restart of the triggerer, once for all."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield ``{"changed": [[team, job, file], ...]}``."""
        previous: frozenset[ObjectInfo] = frozenset()
        while True:
            try:
                store = open_with_connection(self.root, self.aws_conn_id)
                async for listing in store.watch(layout.SCORING, poll_seconds=self.poll_seconds):
                    new = [info.key for info in listing if info not in previous]
                    files = {key: layout.parse_scoring(key) for key in new if not layout.is_hidden(key)}
                    if refused := sorted(key for key, file in files.items() if file is None):
                        shown = ", ".join(map(visible, refused[:_MOST_NAMED]))
                        log.warning("%d files are not scored, for their names: %s", len(refused), shown)
                    previous = frozenset(listing)
                    if changed := sorted(filter(None, files.values())):
                        yield TriggerEvent({"changed": changed})  # type: ignore[no-untyped-call]
            except Exception:
                # The watcher must survive an outage of the store.
                log.exception("cannot list the files to score; trying again")
                await asyncio.sleep(max(self.poll_seconds, 5.0))


def scoring_trigger() -> ScoringTrigger:
    """Return the trigger for the files to score of this platform."""
    settings = airflow_settings()
    return ScoringTrigger(settings.root, settings.aws_conn_id, settings.poll_seconds)
