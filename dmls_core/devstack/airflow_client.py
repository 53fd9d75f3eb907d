"""HTTP clients: of any service of a platform, and of Airflow's REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmls_core.errors import PlatformError, UserError

if TYPE_CHECKING:
    import httpx

_SECONDS = 20.0
_NOT_FOUND = 404
_PROBLEM = "application/problem+json"


def http_client(url: str, seconds: float, **options: Any) -> httpx.Client:  # noqa: ANN401 - those of httpx
    """Return a client for the service at ``url``, with the system's certificate authorities."""
    import ssl

    import httpx

    # Without TLS none: a context takes time to make. Proxies in the environment do not apply to the platform.
    verify = ssl.create_default_context() if url.startswith("https:") else False
    return httpx.Client(trust_env=False, verify=verify, timeout=seconds, **options)


class AirflowClient:
    """Session of one user at the API server at ``url``.

    Raises:
        PlatformError: Airflow does not respond, or refuses the user.
        UserError: the REST API of DMLS refuses the request, and says why.
    """

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url.rstrip("/")
        self._headers: dict[str, str] = {}
        answer = self.call("POST", "/auth/token", {"username": username, "password": password})
        self._headers["Authorization"] = f"Bearer {answer['access_token']}"

    def call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON of the response, ``None`` if it is empty; raise for errors."""
        return self._content(method, path, self._send(method, path, body))

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON of a GET, ``None`` for status 404; raise ``PlatformError`` for other errors."""
        response = self._send("GET", path)
        return None if response.status_code == _NOT_FOUND else self._content("GET", path, response)

    def _send(self, method: str, path: str, body: object = None) -> httpx.Response:
        import httpx

        try:
            with http_client(self.url, _SECONDS, headers=self._headers) as client:
                return client.request(method, self.url + path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise PlatformError(f"Airflow does not answer at {self.url}: {error}") from error

    def _content(self, method: str, path: str, response: httpx.Response) -> Any:  # noqa: ANN401 - JSON
        if response.is_client_error and response.headers.get("content-type") == _PROBLEM:
            raise UserError(response.json()["detail"])
        if not response.is_success:
            raise PlatformError(f"Airflow: {method} {path}: {response.status_code} {response.text[:500]}")
        return response.json() if response.content else None
