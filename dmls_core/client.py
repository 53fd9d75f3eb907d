"""Predict with a served model from anywhere, by its REST API and an API key.

It needs the standard library only. A DataFrame of pandas or polars comes back as one of the same library.
"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from dmls_core.errors import DataError, NotFoundError, ServingError, UserError, ValidationIssue
from dmls_core.settings import API_KEY

ROWS = 50_000
_CHARACTERS = 8 << 20
"""Maximum size of a request; the server accepts 100,000 rows in 32 MiB."""

REQUEST_ID = "X-Request-ID"
NOTES, IGNORED = "DMLS-Notes", "ignored-column"
"""Header that counts what is unlike the training, and its name for columns that the model does not have."""

Table = dict[str, list[Any]]


def connect(model: str, url: str, *, key: str = "", timeout: float = 60.0) -> RemoteModel:
    """Return a served model.

    Args:
        model: ``<team>/<job>``.
        url: address of Airflow's API server, such as ``https://airflow.example``.
        key: an API key of the job or the team; by default the variable ``DMLS_API_KEY``.
        timeout: seconds that a request may take; while the server is busy or your quota is used up, it is
            sent again within them.

    Raises:
        UserError: ``model`` or ``url`` is wrong, or there is no key.

    Examples:
        >>> from dmls_core.client import connect
        >>> model = connect("lab/iris", "https://airflow.example", key="dmls_1_secret")
        >>> model.predict([{"petal_length": 1.4, "petal_width": 0.2}])
        [{'prediction': 'setosa', 'probability_setosa': 0.98}]
    """
    key = key or os.environ.get(API_KEY, "")
    team, _, job = model.replace(".", "/", 1).partition("/")
    parts = urlsplit(url)
    if not (team and job):
        raise UserError(f"{model!r} is not a model: write TEAM/JOB")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UserError(f"{url!r} is not the address of a server: write https://HOST")
    if not key:
        raise UserError("there is no API key: give key=..., or set " + API_KEY)
    return RemoteModel(f"{url.rstrip('/')}/dmls/api/v1/predictions/{team}/{job}", key, timeout)


class _NoRedirects(HTTPRedirectHandler):
    """A redirect could send the key to another server."""

    def redirect_request(self, *_: object) -> None:
        return None


class RemoteModel:
    """A served model behind the REST API."""

    def __init__(self, address: str, key: str, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self.request_ids: list[str] = []
        self.notes: dict[int, list[str]] = {}
        self._ignored = 0
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Accept": "application/json",
        }
        self._opener = build_opener(_NoRedirects)

    def predict(self, rows: Any, *, request_id: str = "", strict: bool = False) -> Any:  # noqa: ANN401
        """Predict rows, sent in requests of limited size.

        Args:
            rows: a pandas or polars DataFrame, a mapping of column names to values, or a list of mappings,
                one per row.
            request_id: under which the inference log has the rows, so that true values that come later find
                their predictions; the rows must fit into one request. By default, the server makes one for
                each request; ``request_ids`` has those of the last call.
            strict: refuse rows unlike those of the training, and columns that the model does not have. By
                default there is a warning of both, the columns are ignored, and ``notes`` has what is special
                about each row, by its number.

        Returns:
            ``prediction`` and, for a classification, ``probability_<label>`` for each label, in the order of
            the rows and in the form of ``rows``: a DataFrame (with pandas' index), a dict or a list.

        Raises:
            UserError: columns are missing or unknown, a value is not a number where one is needed, or the key
                does not open the model.
            ServingError: the server does not respond, or failed.

        Examples:
            A DataFrame of pandas or polars comes back as one of the same library:

            >>> import pandas as pd
            >>> from dmls_core.client import connect
            >>> model = connect("lab/iris", "https://airflow.example", key="dmls_1_secret")
            >>> model.predict(pd.DataFrame({"petal_length": [1.4], "petal_width": [0.2]}, index=["a"]))
              prediction  probability_setosa
            a     setosa                0.98

            True values that come later name the id of the request, and the row in it:

            >>> model.predict([{"petal_length": 1.4, "petal_width": 0.2}], request_id="order-17")
            [{'prediction': 'setosa', 'probability_setosa': 0.98}]
        """
        names, values = _read(rows)
        predictions: list[dict[str, Any]] = []
        self.request_ids, self.notes, self._ignored = [], {}, 0
        for body in _bodies(names, values):
            if request_id and predictions:
                raise DataError("the rows do not fit into one request with this id: predict them in parts")
            try:
                part = self._send(body, request_id, strict=strict)
            except DataError as error:
                if not predictions:
                    raise
                raise DataError(f"{error} (counted from row {len(predictions) + 1:,})") from None
            for number, row in enumerate(part, len(predictions)):
                if "notes" in row:
                    self.notes[number] = row.pop("notes")
            if predictions and part and part[0].keys() != predictions[0].keys():
                raise ServingError("a version with other labels went live meanwhile: try again")
            predictions += part
        if self.notes:
            number, texts = next(iter(self.notes.items()))
            message = f"rows unlike those of the training: {len(self.notes):,}; row {number + 1}: {texts[0]}"
            warnings.warn(message, stacklevel=2)
        if self._ignored:
            warnings.warn(f"columns that the model does not have: {self._ignored}", stacklevel=2)
        return _like(rows, predictions)

    def _send(self, body: str, request_id: str, *, strict: bool) -> list[dict[str, Any]]:
        headers = {**self._headers, **({REQUEST_ID: request_id} if request_id else {})}
        address = self._address + ("?strict=true" if strict else "")
        request = Request(address, body.encode(), headers)  # noqa: S310 - connect checks the scheme
        end = time.monotonic() + self._timeout
        while True:
            try:
                return self._open(request)
            except HTTPError as error:
                wait = error.headers.get("Retry-After", "")
                if not wait.isdigit() or time.monotonic() + int(wait) > end:
                    raise _error(error.code, error.read(), self._address) from None
                time.sleep(int(wait))

    def _open(self, request: Request) -> list[dict[str, Any]]:
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                self.request_ids.append(response.headers.get(REQUEST_ID, ""))
                counts = re.search(rf"{IGNORED}=(\d+)", response.headers.get(NOTES, ""))
                self._ignored = int(counts[1]) if counts else 0
                predictions: list[dict[str, Any]] = json.loads(response.read())
                return predictions
        except HTTPError:
            raise
        except (URLError, TimeoutError, ConnectionError) as error:
            raise ServingError(
                f"{self._address} does not respond: {getattr(error, 'reason', error)}"
            ) from error
        except ValueError as error:
            raise ServingError(f"{self._address} is no DMLS server: its response is not JSON") from error


def _read(rows: Any) -> tuple[list[str], Iterable[Sequence[Any]]]:  # noqa: ANN401
    """Return the columns' names and the rows."""
    if isinstance(rows, Mapping) or hasattr(rows, "columns"):
        keys = list(rows) if isinstance(rows, Mapping) else list(rows.columns)
        if not keys:
            raise DataError("there are no columns")
        if len(set(map(str, keys))) < len(keys):
            raise DataError("a column occurs more than once")
        columns = [rows[key] for key in keys]
        if len({len(column) for column in columns}) != 1:
            raise DataError(f"columns differ in length: {dict(zip(keys, map(len, columns), strict=True))}")
        return [str(key) for key in keys], zip(*columns, strict=True)
    names = list(rows[0]) if rows else []
    for number, row in enumerate(rows, 1):
        if row.keys() != rows[0].keys():
            raise DataError(
                f"the columns of row {number} differ from those of row 1: {', '.join(map(str, row))}"
            )
    return [str(name) for name in names], ([row[name] for name in names] for row in rows)


def _bodies(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield JSON of limited size."""
    objects: list[str] = []
    size = 0
    for row in rows:
        values = dict(zip(names, map(_text, row), strict=True))
        objects.append(json.dumps(values, ensure_ascii=False))
        size += len(objects[-1])
        if len(objects) == ROWS or size > _CHARACTERS:
            yield f"[{','.join(objects)}]"
            objects, size = [], 0
    if objects:
        yield f"[{','.join(objects)}]"


def _text(value: Any) -> str | None:  # noqa: ANN401
    """Return a value of any library as text, which the server reads as in a file; None if it is missing."""
    text = "" if value is None else str(value)
    return None if text in ("", "nan", "<NA>", "NaT") else text


def _like(rows: Any, predictions: list[dict[str, Any]]) -> Any:  # noqa: ANN401
    """Return predictions in the form of ``rows``."""
    if not isinstance(rows, Mapping) and not hasattr(rows, "columns"):
        return predictions
    table: Table = {
        name: [row[name] for row in predictions]
        for name in (predictions[0] if predictions else ("prediction",))
    }
    if isinstance(rows, Mapping):
        return table
    return type(rows)(table, index=rows.index) if hasattr(rows, "index") else type(rows)(table)


def _error(status: int, body: bytes, address: str) -> UserError | ServingError:
    try:
        details = json.loads(body)
        detail = str(details["detail"])
        issues = [ValidationIssue(**problem) for problem in details.get("problems", ())]
    except (ValueError, KeyError, TypeError):
        return ServingError(f"{address} is no DMLS server: status {status}")
    if status == 404:
        return NotFoundError(detail)
    if status in (401, 403):
        return UserError(f"{address}: the API key is not accepted: {detail}")
    if 400 <= status < 500 and status not in (408, 429):
        return DataError(issues or detail)
    return ServingError(f"{address} failed with {status}: {detail}")
