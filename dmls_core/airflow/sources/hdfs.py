"""HDFS for ``ObjectStoragePath``, by WebHDFS: Airflow's HDFS provider has hooks, but no file system."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook
from fsspec.implementations.webhdfs import WebHDFS

schemes = ["hdfs", "webhdfs"]

_PORT = 9870


class Hdfs(WebHDFS):  # type: ignore[misc]
    """A listing fails at a folder that may not be read, which fsspec would leave out without a word."""

    def walk(self, path: str, *arguments: Any, on_error: Any = None, **options: Any) -> Any:
        """Yield folders and files as fsspec does."""
        return super().walk(path, *arguments, on_error=_raise, **options)


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def get_fs(conn_id: str | None, storage_options: dict[str, str] | None = None) -> Hdfs:
    """Return the file system of a connection of the HDFS provider's type ``webhdfs``.

    ``host`` is a name node, or several with commas, of which the first that is active is used. ``extra`` may
    have ``use_ssl``, ``verify`` (a file of certificates), and ``kerberos``, which needs requests-kerberos.

    Raises:
        ValueError: there is no connection, or it names no host.
        OSError: no name node answers.
    """
    if conn_id is None:
        raise ValueError("HDFS needs a connection, for the address of its name node")
    connection = BaseHook.get_connection(conn_id)
    extra, hosts = connection.extra_dejson, [host for host in (connection.host or "").split(",") if host]
    if not hosts:
        raise ValueError("the connection has no host: write the address of the name node there")
    kerberos = bool(extra.get("kerberos"))
    options = {
        "port": connection.port or _PORT,
        "kerberos": kerberos,
        "user": None if kerberos else connection.login,
        "password": None if kerberos else connection.password or None,
        "use_https": bool(extra.get("use_ssl")),
        "session_verify": extra.get("verify", True),
        **(storage_options or {}),
    }
    failures = []
    for host in hosts:
        try:
            files = Hdfs(host.strip(), **options)
            files.info("/")
            return files
        except (OSError, RuntimeError, ValueError) as error:  # a standby answers with an exception
            failures.append(f"{host.strip()}: {error}")
    raise OSError("; ".join(failures))
