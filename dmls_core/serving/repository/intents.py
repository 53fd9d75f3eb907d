"""What publishers are about to serve: a record for each change, which a killed publisher leaves behind.

::

    <repository>/.dmls/intents/<team>.<job>.json

The record is written before anything that users see changes, and deleted once Triton, the champion and the
record of verified versions agree. ``reconcile`` finishes or undoes a change whose record was left behind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from dmls_core.errors import ObjectMissingError, ServingError
from dmls_core.serving.repository.files import failing
from dmls_core.serving.triton.model_config import BOOKKEEPING, check_model_name
from dmls_core.store import ObjectInfo, Store

INTENTS = f"{BOOKKEEPING}/intents/"
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Intent:
    """A change: the version to serve and the one served before it; ``None`` means that nothing is served."""

    version: int | None
    before: int | None


def write_intent(store: Store, model: str, intent: Intent) -> None:
    """Record a change before it begins; raise ServingError if the repository does not answer."""
    with failing(f"record what becomes of {model}"):
        store.put(_key(model), json.dumps({"schema": _SCHEMA, **asdict(intent)}).encode())


def read_intent(store: Store, model: str) -> Intent | None:
    """Return the change that is in progress or was interrupted; raise ServingError for a damaged record."""
    with failing(f"read what becomes of {model}"):
        try:
            record = json.loads(store.get(_key(model)))
            return Intent(record["version"], record["before"])
        except ObjectMissingError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ServingError(
                f"{store.url}/{_key(model)} is damaged: {error!r}; delete it, then run `dmls doctor`"
            ) from error


def clear_intent(store: Store, model: str) -> None:
    """Delete the record of a finished change."""
    with failing(f"record what became of {model}"):
        store.delete(_key(model))


def models_in(listing: Iterable[ObjectInfo]) -> set[str]:
    """Return the models whose change is in progress or was interrupted, from a listing of ``INTENTS``."""
    return {info.key.removeprefix(INTENTS).removesuffix(".json") for info in listing}


def _key(model: str) -> str:
    return f"{INTENTS}{check_model_name(model)}.json"
