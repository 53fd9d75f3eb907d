"""A CSV comes in as a stream and goes out as one, with the predictions added; memory holds little of it."""

from __future__ import annotations

import io
import queue
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO, cast

from starlette.concurrency import run_in_threadpool

from dmls_core.airflow.connections import open_repository
from dmls_core.airflow.settings import airflow_settings
from dmls_core.errors import UserError

CHUNK = 1 << 16
"""Bytes that are sent at a time."""

WAITING = 16
"""Chunks that wait for a slow reader."""

PATIENCE = 0.5
"""Seconds after which a writer looks whether anybody still reads."""


class GoneError(OSError):
    """Nobody reads what is written any more."""


async def scored(body: AsyncIterator[bytes], model: str, file: str) -> AsyncIterator[bytes]:
    """Predict a CSV.

    Args:
        body: the file's bytes.
        model: ``<team>.<job>``, which is served.
        file: its name, for messages.

    Returns:
        The bytes of the file with the predictions, once the first of them are there.

    Raises:
        DataError: the first rows are no CSV of the model's columns.
        NotFoundError: nothing is served.
        ServingError: Triton does not answer.
    """
    folder = Path(await run_in_threadpool(tempfile.mkdtemp, prefix="dmls-score-"))
    try:
        source = folder / "data.csv"
        with source.open("wb") as target:
            async for part in body:
                await run_in_threadpool(target.write, part)
        pipe = _Pipe()
        threading.Thread(target=_work, args=(source, model, file, pipe), daemon=True).start()
        first = await run_in_threadpool(pipe.next)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _sent(first, pipe, folder)


async def _sent(first: bytes | None, pipe: _Pipe, folder: Path) -> AsyncIterator[bytes]:
    try:
        part = first
        while part is not None:
            yield part
            part = await run_in_threadpool(pipe.next)
    finally:
        pipe.gone.set()
        shutil.rmtree(folder, ignore_errors=True)


class _Pipe(io.TextIOBase):
    """A text stream that one thread writes and others read from, in chunks."""

    def __init__(self) -> None:
        self.gone = threading.Event()
        self._parts: queue.Queue[bytes | Exception | None] = queue.Queue(WAITING)
        self._held: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        """Take a text; raises ``GoneError`` once nobody reads any more."""
        self._held.append(text)
        self._size += len(text)
        if self._size >= CHUNK:
            self.pass_on()
        return len(text)

    def pass_on(self) -> None:
        """Hand on what was written."""
        if self._held:
            self._put("".join(self._held).encode())
            self._held, self._size = [], 0

    def end(self, error: Exception | None = None) -> None:
        """Say that nothing more comes, or why."""
        self._put(error)

    def next(self) -> bytes | None:
        """Return the next chunk, None at the end; raises what the writer met."""
        part = self._parts.get()
        if isinstance(part, Exception):
            raise part
        return part

    def _put(self, part: bytes | Exception | None) -> None:
        while not self.gone.is_set():
            try:
                self._parts.put(part, timeout=PATIENCE)
            except queue.Full:
                continue
            return
        raise GoneError


def _work(source: Path, model: str, file: str, pipe: _Pipe) -> None:
    from dmls_core.serving import Predictor, predict_file, triton_servers

    settings = airflow_settings()
    try:
        with triton_servers(settings.triton_http, settings.triton_grpc) as servers:
            predict_file(
                Predictor(open_repository(settings), servers[0], model), source, cast("TextIO", pipe)
            )
            pipe.pass_on()
        pipe.end()
    except GoneError:
        return
    except UserError as error:
        pipe.end(type(error)([replace(problem, file=file) for problem in error.issues]))
    except Exception as error:  # noqa: BLE001  the reader raises it
        pipe.end(error)
