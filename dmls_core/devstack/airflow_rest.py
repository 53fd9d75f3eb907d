"""Ask Airflow's REST API."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

from dmls_core.errors import PlatformError

SECONDS = 20.0
NOT_FOUND = 404


class AirflowRest:
    """A session of one user.

    Args:
        url: base URL of the API server.
        username: user.
        password: their password.

    Raises:
        PlatformError: Airflow does not answer, or refuses the user.
    """

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url.rstrip("/")
        self._token = ""
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        answer = self.call("POST", "/auth/token", {"username": username, "password": password})
        self._token = answer["access_token"]

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON that a request answers with (``None`` for an empty answer).

        Raises:
            PlatformError: Airflow does not answer, or with an error.
        """
        try:
            request = urllib.request.Request(  # noqa: S310 - the platform's own address
                self.url + path,
                method=method,
                data=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
            )
            if self._token:
                request.add_header("Authorization", f"Bearer {self._token}")
            with self._opener.open(request, timeout=SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            detail = error.read(500).decode(errors="replace")
            raise PlatformError(f"Airflow: {method} {path}: {error.code} {detail}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: it is no address
            raise PlatformError(f"Airflow does not answer at {self.url}: {error}") from error
        return json.loads(text) if text else None

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON of a GET; ``None`` when there is no such thing.

        Raises:
            PlatformError: Airflow does not answer, or with another error.
        """
        try:
            return self.call("GET", path)
        except PlatformError as error:
            if isinstance(error.__cause__, urllib.error.HTTPError) and error.__cause__.code == NOT_FOUND:
                return None
            raise
