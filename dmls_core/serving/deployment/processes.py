"""Find processes of a Triton server that ended, and reload their models.

Triton's Python backend runs a model in processes of its own: table endpoints and, with the stand-in of the
FIL backend, forests. If one is killed, Triton still reports its model as ready, and does not start it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import InvalidRequestError, NotFoundError, ServingError, ServingTimeoutError
from dmls_core.serving.deployment.acceptance import check_version
from dmls_core.serving.deployment.verification import GoldenRows
from dmls_core.serving.repository.intents import Intent, clear_intent, read_intent, write_intent
from dmls_core.serving.repository.locks import BusyError
from dmls_core.serving.repository.repository import Repository
from dmls_core.serving.repository.shared_process import has_shared_process, process_runs, restart_process
from dmls_core.serving.triton.client import TritonClient
from dmls_core.serving.triton.model_config import CANDIDATE, CHALLENGER, SUFFIX, check_model_name, table_name
from dmls_core.serving.triton.shared_process import SHARED
from dmls_core.serving.triton.tensors import table_tensors

ROWS = 40
"""Rows for a table endpoint: it asks the forest for more than ``in_process.LARGEST_ROWS``."""

PROBE_SECONDS = 10.0
"""Time for an answer. A process that ended fails within 3 s, one that is slower is busy."""

REMEMBERED = 2
"""Versions of a model whose golden rows are kept: the served one and the challenger."""

Tensors = dict[str, NDArray[Any]]


class ProcessProbe:
    """Sends golden rows to the models of a repository.

    Attributes:
        requests: requests that were answered, by server (gRPC) and model; they are not from users.
    """

    def __init__(self, repository: Repository) -> None:
        """Bind to a repository; nothing is read yet."""
        self.repository = repository
        self.requests: Counter[tuple[str, str]] = Counter()
        self._golden: dict[tuple[str, int], tuple[Tensors, Tensors] | None] = {}

    def ended(self, client: TritonClient) -> tuple[set[str], set[str]]:
        """Return the loaded models of a server, and those of them that do not answer as their process ended.

        Forests, table endpoints, challengers and the shared process have processes. Of a model of which two
        ended, only the forest is named, without which the table endpoint does not answer.

        Raises:
            ServingError: the server or the repository does not answer.
        """
        ended = set()
        with client.again(PROBE_SECONDS) as impatient:
            loaded = impatient.loaded()
            if has_shared_process(self.repository.store) and not self.answers(impatient, SHARED, 0):
                ended.add(SHARED)
            for model, version in loaded.items():
                parts = (model, table_name(model)) if _is_model(model) else ()
                for process in (part for part in parts if part in loaded):
                    if not self.answers(impatient, process, version):
                        ended.add(process)
                        break
        return {*loaded}, ended

    def answers(self, client: TritonClient, process: str, version: int) -> bool:
        """Send requests to all instances of a model; return whether all live, or may do so as they are busy.

        Raises:
            ServingError: the server itself does not answer.
        """
        if process == SHARED:
            with suppress(ServingTimeoutError):
                return process_runs(client)
            return True
        golden = self._rows(process.removesuffix(SUFFIX).removesuffix(CHALLENGER), version)
        if golden is None:
            return True  # DMLS did not deploy it
        try:
            config = client.config(process)
            if config.get("platform") == "ensemble":
                return True  # the shared process answers for it
            # Triton's instances answer in turn.
            for _ in range(sum(int(group["count"]) for group in config["instance_group"])):
                client.infer_tensors(process, golden[process.endswith(SUFFIX)])
                self.requests[client.addresses["grpc"], process] += 1
                if process.endswith(SUFFIX):
                    self.requests[client.addresses["grpc"], process.removesuffix(SUFFIX)] += 1
        except (ServingTimeoutError, InvalidRequestError):
            return True  # it is busy, or another version is served by now
        except ServingError:
            if client.live():
                return False
            raise
        return True

    def _rows(self, model: str, version: int) -> tuple[Tensors, Tensors] | None:
        """Return inputs of the forest and of the table endpoint; ``None`` for models of others."""
        key = model, version
        if key not in self._golden:
            try:
                golden = GoldenRows.read(self.repository, model, version)
            except NotFoundError:
                self._golden[key] = None
                return None
            before = [one for one in self._golden if one[0] == model]
            for old in before[: 1 - REMEMBERED]:
                del self._golden[old]
            columns = table_tensors(golden.encoder, golden.columns)
            table = {name: np.resize(values, (ROWS, 1)) for name, values in columns.items()}
            self._golden[key] = {"input__0": golden.encoded[:1]}, table
        return self._golden[key]

    @contextmanager
    def reloading(self, client: TritonClient, process: str) -> Iterator[Callable[[], None] | None]:
        """Keep deployments of a model out; yield what reloads its process, ``None`` if that answers by now.

        The version stays. A server or a caller that is killed meanwhile leaves the record of a change, which
        ``reconcile`` finishes.

        Raises:
            BusyError: what is served of the model is being changed, or a change was interrupted.
            ServingError: the server or the repository does not answer. What is yielded raises it also for a
                model that is damaged, or cannot be loaded.
        """
        if process == SHARED:
            yield None if self.answers(client, SHARED, 0) else lambda: _restart(client)
            return
        model = process.removesuffix(SUFFIX).removesuffix(CHALLENGER)
        with self.repository.lock(model, timeout=0.0):
            challenger = self.repository.options(model).canary if process.endswith(CHALLENGER) else None
            version = challenger.version if challenger else self.repository.serving(model)
            forest = process.removesuffix(SUFFIX)
            changing = read_intent(self.repository.store, model) or client.versions(forest) != (version,)
            if version is None or changing:
                raise BusyError(f"what is served of {model} is being changed")
            with client.again(PROBE_SECONDS) as impatient:
                answers = self.answers(impatient, process, version)
            yield None if answers else lambda: self._reload(client, process, version)

    def _reload(self, client: TritonClient, process: str, version: int) -> None:
        model, store = process.removesuffix(SUFFIX), self.repository.store
        if process.endswith(CHALLENGER):
            self.repository.check_copy(model.removesuffix(CHALLENGER), version, CHALLENGER)
            self._unload_and_load(client, process, version)
            return
        if process == model:
            check_version(self.repository, model, version)
        write_intent(store, model, Intent(version, version))
        try:
            self._unload_and_load(client, process, version)
        except ServingError:
            # What is loaded needs no repair. This caller may not be allowed to unload it: the next one may.
            with suppress(ServingError):
                if client.ready(process):
                    clear_intent(store, model)
            raise
        clear_intent(store, model)

    def _unload_and_load(self, client: TritonClient, process: str, version: int) -> None:
        client.unload(process)  # a load alone does nothing: Triton takes the model for loaded
        client.load(process)
        if not self.answers(client, process, version):
            raise ServingError(
                f"{process} was loaded again, but does not answer: see the log of Triton at "
                f"{client.addresses['http']}"
            )


def _is_model(name: str) -> bool:
    """Return whether a name in Triton is ``<team>.<job>`` or its challenger's; candidates are left out."""
    try:
        return check_model_name(name) == name and not name.endswith(CANDIDATE)
    except ServingError:
        return False


def _restart(client: TritonClient) -> None:
    restart_process(client)
