"""Pass inputs to a Triton server on the same machine by POSIX shared memory instead of messages."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dmls_core.errors import ServingError

log = logging.getLogger(__name__)

_FOLDER = "/dev/shm"  # noqa: S108 - POSIX shared memory on Linux

START_BYTES = 1 << 16

_ALIGNMENT = 64
"""Tensors begin at multiples of this many bytes."""

_RELEASE_SECONDS = 2.0
"""Maximum wait until the server frees a region: it answers a request a moment earlier."""


class SharedInputs:
    """One region that a server has open, for the inputs of one request at a time.

    The region is kept between requests; a larger one replaces it if a request needs more room.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401  untyped
        address: str,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Open a small region at once, to check that the server supports it.

        ``address`` is for messages; ``timeout`` is in seconds; ``headers`` go with registrations.

        Raises:
            ServingError: this machine has no shared memory, or the server cannot or may not open it.
            InferenceServerException: the server does not answer.
        """
        self._client, self._address = client, address
        self._options: dict[str, Any] = {"client_timeout": timeout, "headers": headers}
        self._name, self._handle, self._size = "", None, 0
        if not Path(_FOLDER).is_dir():
            raise ServingError(f"shared memory needs Linux and its {_FOLDER}: connect without shared_memory")
        self._memory = import_module("tritonclient.utils.shared_memory")
        self._utils = import_module("tritonclient.utils")
        self._open(START_BYTES)

    def ask(self, inputs: Mapping[Any, NDArray[Any]], infer: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Copy the inputs into the region, send a request with them, and return the answer.

        Raises:
            ServingError: there is no room, or the server cannot open the region any more.
            InferenceServerException: the server does not answer, or refuses.
        """
        opened_before = self._handle is not None
        while True:
            self._fill(inputs)
            try:
                return infer()
            except BaseException as error:
                # The server may still read the region of a failed request: the next one gets another region.
                self.release()
                if not (opened_before and "Unable to find shared memory region" in str(error)):
                    raise
                opened_before = False  # the server was restarted since

    def release(self) -> None:
        """Have the server close the region, if there is one, and remove it."""
        if self._handle is None:
            return
        handle, self._handle, self._size = self._handle, None, 0
        try:
            self._unregister()
        finally:
            self._memory.destroy_shared_memory_region(handle)

    def _fill(self, inputs: Mapping[Any, NDArray[Any]]) -> None:
        placed, end = [], 0
        for tensor, values in inputs.items():
            texts = values.dtype == object
            content = self._utils.serialize_byte_tensor(values) if texts else values
            size = len(content.item()) if texts else content.nbytes
            placed.append((tensor, content, size, end))
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        if end > self._size:
            self.release()
            self._open(end + end // 4)  # texts differ in length from request to request
        for tensor, content, size, start in placed:
            self._memory.set_shared_memory_region(self._handle, [content], start)
            tensor.set_shared_memory(self._name, size, start)

    def _open(self, size: int) -> None:
        self._name = f"dmls-{uuid.uuid4().hex}"
        key = f"/{self._name}"
        try:
            self._handle = self._memory.create_shared_memory_region(self._name, key, size, create_only=True)
            # Without room for it, writing to a region would kill this process by a signal.
            file = os.open(f"{_FOLDER}{key}", os.O_RDWR)
            try:
                os.posix_fallocate(file, 0, size)
            finally:
                os.close(file)
            self._client.register_system_shared_memory(self._name, key, size, **self._options)
        except BaseException as error:
            self.release()
            if isinstance(error, OSError | self._memory.SharedMemoryException):
                raise ServingError(
                    f"{_FOLDER} has no room for {size:,} bytes: give it more, or connect without "
                    f"shared_memory ({error})"
                ) from error
            if isinstance(error, self._utils.InferenceServerException) and not _is_silent(error):
                raise ServingError(
                    f"Triton at {self._address} cannot use this machine's shared memory: it has to run here, "
                    f"see the same {_FOLDER}, and have no key or that of DMLS_TRITON_KEY; "
                    f"else connect without shared_memory ({error.message()})"
                ) from error
            raise
        self._size = size

    def _unregister(self) -> None:
        end = time.monotonic() + _RELEASE_SECONDS
        while True:
            try:
                self._client.unregister_system_shared_memory(self._name, **self._options)
            except self._utils.InferenceServerException as error:
                if "in use" in str(error):
                    if time.monotonic() < end:
                        time.sleep(0.01)
                        continue
                    log.warning("Triton at %s keeps a region of memory: %s", self._address, error)
            return  # a server that is gone, or rejects registration, has nothing to close


def _is_silent(error: Any) -> bool:  # noqa: ANN401
    """Return whether the server did not answer, rather than reject the request."""
    status: str = error.status() or ""
    return status.endswith(("UNAVAILABLE", "DEADLINE_EXCEEDED")) and "restricted" not in error.message()
