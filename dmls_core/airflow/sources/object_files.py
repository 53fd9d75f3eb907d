"""Files of object stores through Airflow connections, by Airflow's ``ObjectStoragePath``."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from airflow.sdk import BaseHook, ObjectStoragePath
from airflow.sdk.exceptions import AirflowException

from dmls_core.airflow.sources.connections import check_allowed, connection_failure
from dmls_core.data.formats.names import is_data_name
from dmls_core.errors import DataError, DmlsError, ValidationIssue
from dmls_core.spec.partitions import parse_names
from dmls_core.store import ObjectInfo

_CHUNK = 8 << 20

_MODIFIED = ("LastModified", "last_modified", "mtime", "modificationTime")
"""What file systems call the time of a file's last write."""


class ObjectFiles:
    """The files that ``path`` names: a folder with a slash at its end, or a pattern. Keys are addresses."""

    def __init__(self, team: str, connection: str, path: str) -> None:
        """Open the file system, by the connection alone.

        Raises:
            DataError: the team may not use the connection.
            PlatformError: the connection is missing, or no installed provider reads ``path`` with it.
        """
        check_allowed(team, connection, "data.source.connection")
        self._connection, self._path = connection, path
        try:
            # Airflow's hooks replace a missing connection by the credentials of the worker.
            BaseHook.get_connection(connection)
            self._prefix = path if path.endswith("/") else parse_names(path)[0].rpartition("/")[0] + "/"
            folder = ObjectStoragePath(self._prefix, conn_id=connection)
            self._fs: Any = folder.fs
            self._folder = folder.path.rstrip("/") + "/"
        except (AirflowException, AttributeError, ImportError, ValueError, OSError) as error:
            raise connection_failure(connection, error) from error

    def list(self) -> list[ObjectInfo]:
        """Return the files by address; raise ``PlatformError`` if the object store does not answer."""
        try:
            self._fs.invalidate_cache()
            listing = self._fs.find(self._folder, detail=True)
        except FileNotFoundError:
            return []
        except Exception as error:  # each file system raises what its client does
            raise connection_failure(self._connection, error) from error
        infos = [
            _info(self._prefix + name[len(self._folder) :], details) for name, details in listing.items()
        ]
        return sorted((info for info in infos if self._means(info.key)), key=lambda info: info.key)

    def _means(self, key: str) -> bool:
        name = key.rpartition("/")[2]
        if not self._path.endswith("/"):
            return parse_names(self._path)[1].fullmatch(key) is not None
        return is_data_name(name) and not name.startswith((".", "_"))

    def download(self, info: ObjectInfo, target: Path) -> None:
        """Write a listed file to ``target``.

        Raises:
            DataError: the file was deleted or replaced since it was listed.
            PlatformError: the object store does not answer.
        """
        path = self._folder + info.key.removeprefix(self._prefix)
        try:
            with self._fs.open(path, "rb", cache_type="readahead") as source, target.open("wb") as file:
                while block := source.read(_CHUNK):
                    file.write(block)
            self._fs.invalidate_cache()
            now = _info(info.key, self._fs.info(path))
        except FileNotFoundError as error:
            raise _changed(info.key, "was deleted") from error
        except DmlsError:
            raise
        except Exception as error:
            raise connection_failure(self._connection, error) from error
        if (now.etag, now.size) != (info.etag, info.size):
            raise _changed(info.key, "was replaced")


def hive_columns(key: str) -> dict[str, str]:
    """Return the columns that the folders of a file give: ``dt=2026-01-31`` is the column ``dt``."""
    pairs = (part.partition("=") for part in key.split("/")[3:-1])
    return {name: unquote(value) for name, equals, value in pairs if name and equals}


def _info(key: str, details: dict[str, Any]) -> ObjectInfo:
    """Return what a file system knows of a file; without an ETag, a hash of its size and last write."""
    modified = next((details[name] for name in _MODIFIED if details.get(name)), "")
    etag = details.get("ETag") or details.get("etag") or details.get("md5Hash") or details.get("content_md5")
    text = json.dumps([str(etag or modified), details["size"]])
    name = str(etag).strip('"') if etag else hashlib.sha256(text.encode()).hexdigest()[:32]
    moment = modified if isinstance(modified, datetime) else datetime.now(UTC)
    return ObjectInfo(key, int(details["size"]), name, moment)


def _changed(key: str, what: str) -> DataError:
    hint = "clear the task `validate` when no program writes there"
    return DataError(ValidationIssue(f"the file {what} while it was read", hint=hint, file=key))
