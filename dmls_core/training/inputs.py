"""Fetch spec and data to this machine, and check that they are the accepted ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from dmls_core.errors import ConflictError, DataError, ObjectMissingError, SpecError, ValidationIssue
from dmls_core.models import load_spec
from dmls_core.spec import Spec
from dmls_core.store import open_store


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file on this machine; ``url`` is its address in the request.

    ``etag`` is the store's, or the start of the SHA-256 of a local file without one.
    """

    url: str
    path: Path
    etag: str
    size: int
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return the file's entry in ``result.json``."""
        return {"url": self.url, "etag": self.etag, "bytes": self.size, "sha256": self.sha256}


def read_spec(url: str) -> Spec:
    """Read ``spec.toml`` or an accepted spec's JSON; raise ``SpecError`` if it is missing or invalid."""
    folder, name = _split(url)
    try:
        content = open_store(folder).get(name) if "://" in url else Path(url).read_bytes()
    except (ObjectMissingError, FileNotFoundError, IsADirectoryError) as error:
        raise SpecError(ValidationIssue("there is no such file", file=url)) from error
    if not name.endswith(".json"):
        return load_spec(content, file=name)
    try:
        return Spec.from_json(json.loads(content), file=name)
    except ValueError as error:
        raise SpecError(ValidationIssue("is not JSON", file=name)) from error


def fetch_data(urls: Sequence[str], etags: Sequence[str], scratch: Path) -> list[DataFile]:
    """Download data files (paths or ``s3://`` URLs) to ``scratch``; local ones stay in place.

    Raise ``DataError`` if a file is missing, or its ETag is not that of ``etags`` (empty: no check).
    """
    files: list[DataFile] = []
    for number, url in enumerate(urls):
        wanted = etags[number] if etags else None
        try:
            path, etag = _fetch(url, wanted, scratch / "data" / str(number))
        except (ObjectMissingError, FileNotFoundError, IsADirectoryError) as error:
            raise DataError(ValidationIssue("there is no such file", file=url)) from error
        except ConflictError as error:
            raise DataError(
                ValidationIssue(
                    "the data is not what was accepted: it has changed since",
                    file=url,
                    expected=f"ETag {wanted}",
                    hint="drop the spec again to train on the data as it is now",
                )
            ) from error
        with path.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        files.append(DataFile(url, path, etag or sha256[:32], path.stat().st_size, sha256))
    return files


def cut_data(
    files: Sequence[DataFile], spec: Spec, since: datetime | None, until: datetime, folder: Path
) -> list[DataFile]:
    """Leave out rows whose ``[columns] time`` is outside of an interval, and files without other rows.

    Raise ``DataError`` if a file has no such column or no time in it, or if no row is left.
    """
    from dmls_core.data.time_filter import TimeFilter, filter_files

    if spec.columns.time is None:
        return list(files)
    cut = TimeFilter(spec.columns.time, since, until, spec.timezone)
    paths = filter_files([file.path for file in files], cut, folder, data_format=spec.data.format)
    return [replace(file, path=path) for file, path in zip(files, paths, strict=True) if path]


def _fetch(url: str, etag: str | None, folder: Path) -> tuple[Path, str]:
    """Return the local path of a file, and its ETag if a store gave one."""
    if "://" not in url and etag is None:
        return Path(url).resolve(strict=True), ""
    place, name = _split(url if "://" in url else str(Path(url).resolve(strict=True)))
    store = open_store(place)
    if "://" in url:
        folder.mkdir(parents=True)
        return folder / name, store.download(name, folder / name, etag=etag).etag
    info = store.head(name)
    if info is None or info.etag != etag:
        raise ConflictError(f"{url} has changed")
    return Path(url).resolve(), info.etag


def _split(url: str) -> tuple[str, str]:
    """Split an address into its folder and the file's name."""
    if "://" in url:
        folder, _, name = url.rpartition("/")
        return folder, name
    path = PurePosixPath(Path(url).absolute())
    return str(path.parent), path.name
