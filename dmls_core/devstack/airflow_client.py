"""Call Airflow's REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmls_core.errors import PlatformError

if TYPE_CHECKING:
    import httpx

SECONDS = 20.0
NOT_FOUND = 404


class AirflowClient:
    """A session of one user at Airflow's API server.

    Args:
        url: base URL of the API server.
        username: name of the user.
        password: password of the user.

    Raises:
        PlatformError: Airflow does not answer, or refuses the user.
    """

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url.rstrip("/")
        self._headers: dict[str, str] = {}
        answer = self.call("POST", "/auth/token", {"username": username, "password": password})
        self._headers["Authorization"] = f"Bearer {answer['access_token']}"

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON answer of a request; ``None`` if the answer is empty.

        Raises:
            PlatformError: Airflow does not answer, or with an error.
        """
        return self._content(method, path, self._send(method, path, body))

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON answer of a GET request; ``None`` if the object does not exist.

        Raises:
            PlatformError: Airflow does not answer, or with another error.
        """
        response = self._send("GET", path)
        return None if response.status_code == NOT_FOUND else self._content("GET", path, response)

    def _send(self, method: str, path: str, body: object = None) -> httpx.Response:
        import httpx

        try:
            # Proxies of the environment are for other hosts than the platform's.
            with httpx.Client(trust_env=False, timeout=SECONDS, headers=self._headers) as client:
                return client.request(method, self.url + path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise PlatformError(f"Airflow does not answer at {self.url}: {error}") from error

    def _content(self, method: str, path: str, response: httpx.Response) -> Any:  # noqa: ANN401 - JSON
        if response.is_error:
            raise PlatformError(f"Airflow: {method} {path}: {response.status_code} {response.text[:500]}")
        return response.json() if response.content else None
