"""Score a CSV in chunks and stream it back with the predictions added."""

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

CHUNK_BYTES = 1 << 16
MAX_CHUNKS = 16
"""Chunks that may wait for a slow reader."""

POLL_SECONDS = 0.5
"""How often a blocked writer checks whether the reader has gone."""


class ReaderGoneError(OSError):
    """The client has closed the connection."""


async def score_csv(body: AsyncIterator[bytes], model: str, file: str) -> AsyncIterator[bytes]:
    """Return the rows of a CSV with their predictions, in chunks, once the first chunk exists.

    Until then errors of the data or of Triton are raised here; later ones break the stream. Messages name
    ``file``.
    """
    folder = Path(await run_in_threadpool(tempfile.mkdtemp, prefix="dmls-score-"))
    try:
        source = folder / "data.csv"
        with source.open("wb") as target:
            async for part in body:
                await run_in_threadpool(target.write, part)
        pipe = _Pipe()
        threading.Thread(target=_score, args=(source, model, file, pipe), daemon=True).start()
        first = await run_in_threadpool(pipe.next)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _stream(first, pipe, folder)


async def _stream(first: bytes | None, pipe: _Pipe, folder: Path) -> AsyncIterator[bytes]:
    try:
        chunk = first
        while chunk is not None:
            yield chunk
            chunk = await run_in_threadpool(pipe.next)
    finally:
        pipe.reader_gone.set()
        shutil.rmtree(folder, ignore_errors=True)


class _Pipe(io.TextIOBase):
    """Text stream that one thread writes and another reads in chunks."""

    def __init__(self) -> None:
        self.reader_gone = threading.Event()
        self._chunks: queue.Queue[bytes | Exception | None] = queue.Queue(MAX_CHUNKS)
        self._buffer: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        """Write text; raise ``ReaderGoneError`` once the reader has gone."""
        self._buffer.append(text)
        self._size += len(text)
        if self._size >= CHUNK_BYTES:
            self.send_buffer()
        return len(text)

    def send_buffer(self) -> None:
        if self._buffer:
            self._put("".join(self._buffer).encode())
            self._buffer, self._size = [], 0

    def finish(self, error: Exception | None = None) -> None:
        self._put(error)

    def next(self) -> bytes | None:
        """Return the next chunk, or ``None`` at the end; raise the writer's error."""
        chunk = self._chunks.get()
        if isinstance(chunk, Exception):
            raise chunk
        return chunk

    def _put(self, chunk: bytes | Exception | None) -> None:
        while not self.reader_gone.is_set():
            try:
                self._chunks.put(chunk, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return
        raise ReaderGoneError


def _score(source: Path, model: str, file: str, pipe: _Pipe) -> None:
    from dmls_core.serving import Predictor, predict_file, triton_servers

    settings = airflow_settings()
    try:
        with triton_servers(settings.triton_http, settings.triton_grpc) as servers:
            predictor = Predictor(open_repository(settings), servers[0], model)
            predict_file(predictor, source, cast("TextIO", pipe))
            pipe.send_buffer()
        pipe.finish()
    except ReaderGoneError:
        return
    except UserError as error:
        pipe.finish(type(error)([replace(problem, file=file) for problem in error.issues]))
    except Exception as error:  # noqa: BLE001 - the reader raises it
        pipe.finish(error)
