"""Clients of Triton over HTTP and gRPC; errors name the server's address and the step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import InvalidRequestError, PlatformError, ServingError, ServingTimeoutError
from dmls_core.serving.triton.addresses import Address, Protocol, parse_address

OWN_REQUEST = "dmls.own"
"""Id of requests sent by this client: the inference log leaves them out, as they are not from users."""

OF_CANDIDATE = "dmls.candidate."
"""Prefix of the id, before the version, of requests that a table endpoint hands to the candidate."""

# A restarted server must be found at once: by default gRPC waits up to minutes before it reconnects, in all
# channels of a process to the same address. Messages may be as large as Triton accepts.
CHANNEL = [
    ("grpc.max_send_message_length", 2**31 - 1),
    ("grpc.max_receive_message_length", 2**31 - 1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


ModelUse = tuple[int, float]
"""Requests that a model answered, and seconds in which it computed."""

COMPUTING = ("compute_input", "compute_infer", "compute_output")


class TritonClient:
    """One Triton server, for one thread at a time."""

    def __init__(
        self, http: str, grpc: str, *, timeout: float = 60.0, load_timeout: float = 600.0, key: str = ""
    ) -> None:
        """Bind to the addresses of both endpoints; nothing is contacted yet.

        A load may take ``load_timeout`` seconds, since Triton answers once the model is ready, any other
        request ``timeout`` seconds. ``key`` is that of a server that restricts who may load models.

        Raises:
            PlatformError: an address is empty, or none of Triton.
        """
        if not (http and grpc):
            raise PlatformError(
                "Triton's addresses are not set: set DMLS_TRITON_HTTP and DMLS_TRITON_GRPC to host:port"
            )
        self._addresses: dict[Protocol, Address] = {
            "http": parse_address(http, "http"),
            "grpc": parse_address(grpc, "grpc"),
        }
        self.addresses = {protocol: str(address) for protocol, address in self._addresses.items()}
        self.timeout = timeout
        self.load_timeout = load_timeout
        self._key = key
        self._headers = key_headers(key)

    def again(self, timeout: float) -> Self:
        """Return another client of the same server, for another thread; ``timeout`` covers loads too."""
        http, grpc = self.addresses["http"], self.addresses["grpc"]
        return type(self)(http, grpc, timeout=timeout, load_timeout=timeout, key=self._key)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        for name in ("_http", "_grpc"):
            if client := self.__dict__.pop(name, None):
                client.close()

    def live(self) -> bool:
        """Return whether the server answers on both endpoints."""
        try:
            with self._answering("http"):
                http: bool = self._http.is_server_live()
            with self._answering("grpc"):
                grpc: bool = self._grpc.is_server_live(client_timeout=self.timeout)
        except ServingError:
            return False
        return http and grpc

    def load(self, name: str) -> None:
        """Load what the repository configures for ``name``, and wait until it is ready.

        Raises:
            ServingError: it could not be loaded; the server still serves the previous version.
        """
        with self._answering("grpc", f"load {name}"):
            self._grpc.load_model(name, headers=self._headers, client_timeout=self.load_timeout)

    def unload(self, name: str) -> None:
        """Unload ``name``, or raise ServingError."""
        with self._answering("grpc", f"unload {name}"):
            self._grpc.unload_model(name, headers=self._headers, client_timeout=self.timeout)

    def versions(self, name: str) -> tuple[int, ...]:
        """Return the versions of a model that answer requests, ascending.

        Raises:
            ServingError: the server itself does not answer.
        """
        # Not the repository's index: that would read the repository, which may be in an unreachable S3.
        try:
            with self._answering("grpc", f"list the versions of {name}"):
                metadata = self._grpc.get_model_metadata(name, client_timeout=self.timeout, as_json=True)
        except ServingError as error:
            if "unknown model" in str(error):
                return ()
            raise
        return tuple(sorted(int(version) for version in metadata.get("versions", ())))

    def ready(self, name: str) -> bool:
        """Return whether a model answers requests, as ``/v2/models/NAME/ready`` does over HTTP.

        Raises:
            ServingError: the server itself does not answer.
        """
        with self._answering("grpc", f"report the state of {name}"):
            return bool(self._grpc.is_model_ready(name, client_timeout=self.timeout))

    def uses(self) -> dict[str, ModelUse]:
        """Return for each model the requests that all its versions have answered, and their computing time.

        Both count from the start of the server, or from the load of a version.

        Raises:
            ServingError: the server does not answer.
        """
        with self._answering("http", "report its statistics"):
            models = self._http.get_inference_statistics()["model_stats"]
        uses: dict[str, ModelUse] = {}
        for model in models:
            stats, (count, seconds) = model["inference_stats"], uses.get(model["name"], (0, 0.0))
            spent = sum(int(stats[step]["ns"]) for step in COMPUTING)
            uses[model["name"]] = (count + int(stats["success"]["count"]), seconds + spent / 1e9)
        return uses

    def loaded(self) -> dict[str, int]:
        """Return the models that answer requests, each with its latest version.

        Raises:
            ServingError: the server does not answer.
        """
        with self._answering("http", "report its statistics"):
            models = self._http.get_inference_statistics()["model_stats"]
        versions: dict[str, int] = {}
        for model in models:
            versions[model["name"]] = max(versions.get(model["name"], 0), int(model["version"]))
        return versions

    def config(self, name: str) -> dict[str, Any]:
        """Return a loaded model's configuration, completed by Triton.

        Raises:
            ServingError: the model is not loaded, or the server does not answer.
        """
        with self._answering("grpc", f"return the configuration of {name}"):
            answer = self._grpc.get_model_config(name, client_timeout=self.timeout, as_json=True)
        config: dict[str, Any] = answer["config"]
        return config

    def infer(
        self, name: str, rows: NDArray[np.float32], *, version: int | None = None, protocol: Protocol = "grpc"
    ) -> NDArray[np.float32]:
        """Return the model's outputs, float32 of shape (n_rows, n_outputs), for encoded rows.

        ``rows``: float32, shape (n_rows, n_features). ``version``: by default the latest served one.

        Raises:
            ServingError: the server does not answer, or not with one row of outputs per row.
        """
        model_version = "" if version is None else str(version)
        tensors = {"input__0": np.ascontiguousarray(rows, dtype=np.float32)}
        answer = self.infer_tensors(name, tensors, version=model_version, protocol=protocol)
        outputs = answer.as_numpy("output__0")
        if outputs is None or outputs.size == 0 or outputs.shape[0] != rows.shape[0]:
            raise ServingError(
                f"{name} at {self.addresses[protocol]} answered {rows.shape[0]} rows with "
                f"{'nothing' if outputs is None else f'an output of shape {outputs.shape}'}"
            )
        return np.asarray(outputs, dtype=np.float32).reshape(rows.shape[0], -1)

    def infer_tensors(
        self,
        name: str,
        tensors: Mapping[str, NDArray[Any]],
        *,
        version: str = "",
        protocol: Protocol = "grpc",
        request_id: str = OWN_REQUEST,
    ) -> Any:  # noqa: ANN401  the library has no types
        """Return Triton's answer to inputs by name; its ``as_numpy`` returns an output.

        A server that does not answer, or rejects the request, raises ServingError.
        """
        module = import_module(f"tritonclient.{protocol}")
        types = import_module("tritonclient.utils")
        inputs = []
        for key, values in tensors.items():
            inputs.append(module.InferInput(key, list(values.shape), types.np_to_triton_dtype(values.dtype)))
            inputs[-1].set_data_from_numpy(values)
        options = {"client_timeout": self.timeout} if protocol == "grpc" else {}
        with self._answering(protocol, f"infer with {name} version {version or 'latest'}"):
            client = self._http if protocol == "http" else self._grpc
            return client.infer(name, inputs, model_version=version, request_id=request_id, **options)

    @cached_property
    def _http(self) -> Any:  # noqa: ANN401  the library has no types
        return import_module("tritonclient.http").InferenceServerClient(
            **self._addresses["http"].client_options(),
            connection_timeout=self.timeout,
            network_timeout=self.timeout,
        )

    @cached_property
    def _grpc(self) -> Any:  # noqa: ANN401
        return import_module("tritonclient.grpc").InferenceServerClient(
            **self._addresses["grpc"].client_options(), channel_args=CHANNEL
        )

    @contextmanager
    def _answering(self, protocol: Protocol, doing: str = "report its state") -> Iterator[None]:
        """Turn errors of the client libraries into a ``ServingError`` that names the address."""
        from geventhttpclient.response import HTTPParseError
        from tritonclient.utils import InferenceServerException

        address = self._addresses[protocol].url
        try:
            yield
        except InferenceServerException as error:
            if error.status() == "StatusCode.DEADLINE_EXCEEDED":
                raise ServingTimeoutError(_down(address, error.message())) from error
            if self._unreachable(error.status() or ""):
                raise ServingError(_down(address, error.message())) from error
            invalid = error.status() in ("StatusCode.INVALID_ARGUMENT", "400")
            error_type = InvalidRequestError if invalid else ServingError
            raise error_type(f"Triton at {address} could not {doing}: {error.message()}") from error
        except (OSError, HTTPParseError) as error:
            raise ServingError(_down(address, error)) from error

    def _unreachable(self, status: str) -> bool:
        """Return whether the server itself is gone; gRPC reports a missing model as unavailable too."""
        if status != "StatusCode.UNAVAILABLE":
            return False
        # A channel that failed to connect fails all requests for a while, even if the server is back.
        self.close()
        try:
            return not self._grpc.is_server_live(client_timeout=self.timeout)
        except Exception:  # noqa: BLE001  any error means no answer
            self.close()
            return True


def _down(address: str, reason: object) -> str:
    return f"Triton does not answer at {address}: start it, or correct its address ({reason})"


def key_headers(key: str) -> dict[str, str] | None:
    """Return the gRPC headers for what a server restricts; ``None`` without a key."""
    # Imported here: a client without a key needs no settings.
    from dmls_core.settings import TRITON_KEY_HEADER

    return {f"triton-grpc-protocol-{TRITON_KEY_HEADER}": key} if key else None
