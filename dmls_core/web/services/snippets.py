"""The request of a prediction in the languages of its users; each snippet runs as pasted.

Each sends one row to the REST API, and shows how to give the request an id. A long row is in a file, which
the page saves. The API key is in the environment variable ``KEY``, or in a file or a placeholder where
programs have no environment. No key is an argument of a program, which other users see.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from itertools import islice
from typing import Any

from pydantic import BaseModel, Field

from dmls_core.settings import API_KEY as KEY

_PLACEHOLDER = "dmls_..."

KEY_FILE = "dmls_api_key"
"""File with the key in the data folder of PostgreSQL, for its server."""

ROW_FILE = "row.json"
"""File with a long row."""

REQUEST_ID = "X-Request-ID"
ID = "order-17"
LATER = "to report the true value later"
_ADD_ID = f"{LATER}, add --header '{REQUEST_ID}: {ID}'"

_LONGEST = 5_000
"""Characters of the longest row that snippets contain."""

_SHOWN_COLUMNS = 3
"""Columns of a long row that snippets show."""


class Snippet(BaseModel):
    """The request in one language."""

    language: str
    needs: str = Field(description="What must be installed or set.")
    code: str


def is_long(row: Mapping[str, Any]) -> bool:
    """Return whether the snippets read a row from ``ROW_FILE``."""
    return len(json.dumps([row])) > _LONGEST


def make_snippets(url: str, row: Mapping[str, Any]) -> list[Snippet]:
    """Return the snippets that post one row to ``url``, the route that predicts rows of a job."""
    # ASCII only: the request passes every shell, console and editor unchanged.
    long = is_long(row)
    body = None if long else json.dumps([row])
    file = f", the file {ROW_FILE}" if long else ""
    snippets = [
        Snippet(
            language="curl", needs=f"curl, {KEY}{file}", code=_curl(url, body, f'"${KEY}"') + f"\n# {_ADD_ID}"
        ),
        Snippet(language="Python", needs=KEY + file, code=_python(url, None if long else row)),
        Snippet(
            language="JavaScript", needs=f"Node.js 18 or newer, {KEY}{file}", code=_javascript(url, body)
        ),
        Snippet(language="R", needs=f"R 4.1 or newer, httr2, jsonlite, {KEY}{file}", code=_r(url, body)),
        Snippet(
            language="Power Query", needs=f"Excel or Power BI; your key{file}", code=_power_query(url, body)
        ),
        Snippet(
            language="SQL",
            needs=f"PostgreSQL as superuser; on its server curl, and the key in the file {KEY_FILE} of its "
            f"data folder{file and f', which needs {ROW_FILE}, too'}",
            code=_sql(url, body),
        ),
    ]
    if not long:
        return snippets
    note = _describe(row)
    return [
        each.model_copy(update={"code": f"{COMMENTS[each.language]} {note}\n{each.code}"})
        for each in snippets
    ]


COMMENTS = {"curl": "#", "Python": "#", "JavaScript": "//", "R": "#", "Power Query": "//", "SQL": "--"}
"""What begins a comment in each language."""


def _describe(row: Mapping[str, Any]) -> str:
    """Return a line that shows how a long row is written in ``ROW_FILE``."""
    few = json.dumps([dict(islice(row.items(), _SHOWN_COLUMNS))]).removesuffix("}]")[:300]
    return f"{ROW_FILE} has the values of all {len(row):,} columns: {few}, ...}}]"


def _curl(url: str, body: str | None, key: str) -> str:
    data = f"@{ROW_FILE}" if body is None else shlex.quote(body)
    return (
        f"printf 'Authorization: Bearer %s' {key} |\n"
        f"  curl --silent --show-error --fail-with-body {shlex.quote(url)} --header @- \\\n"
        f"  --header 'Content-Type: application/json' --data {data}"
    )


def _python(url: str, row: Mapping[str, Any] | None) -> str:
    values = "".join(f"    {name!a}: {value!a},\n" for name, value in (row or {}).items())
    read_file = f'with open("{ROW_FILE}", "rb") as file:\n    body = file.read()\n'
    return (
        "import json\nimport os\nfrom urllib.request import Request, urlopen\n\n"
        + (read_file if row is None else f"row = {{\n{values}}}\nbody = json.dumps([row]).encode()\n")
        + "request = Request(\n"
        f'    "{url}",\n'
        "    body,\n"
        "    {\n"
        f'        "Authorization": f"Bearer {{os.environ[\'{KEY}\']}}",\n'
        '        "Content-Type": "application/json",\n'
        f'        # "{REQUEST_ID}": "{ID}",  # {LATER}\n'
        "    },\n"
        ")\n"
        "with urlopen(request) as response:\n    print(json.load(response))\n"
    )


def _javascript(url: str, body: str | None) -> str:
    read = f'import("node:fs/promises")\n  .then((files) => files.readFile("{ROW_FILE}"))\n  .then((body) => '
    return (
        ("" if body else read) + f'fetch("{url}", {{\n  method: "POST",\n'
        f"  headers: {{\n    Authorization: `Bearer ${{process.env.{KEY}}}`,\n"
        f'    "Content-Type": "application/json",\n    // "{REQUEST_ID}": "{ID}", // {LATER}\n  }},\n'
        + (f"  body: {json.dumps(body)},\n}})\n" if body else "  body,\n}))\n")
        + "  .then(async (response) => [response.ok, await response.json()])\n"
        "  .then(([ok, found]) => {\n    if (!ok) throw new Error(found.detail);\n"
        "    console.log(found[0]);\n  });\n"
    )


def _r(url: str, body: str | None) -> str:
    body_line = "" if body is None else f"body <- {json.dumps(body)}\n"
    sent = f'req_body_file("{ROW_FILE}"' if body is None else "req_body_raw(body"
    return (
        f'library(httr2)\n\n{body_line}answer <- request("{url}") |>\n'
        f'  req_auth_bearer_token(Sys.getenv("{KEY}")) |>\n'
        f'  {sent}, type = "application/json") |>\n'
        f'  # req_headers("{REQUEST_ID}" = "{ID}") |>  # {LATER}\n  req_perform() |>\n'
        "  resp_body_json()\n"
        'for (name in names(answer[[1]])) cat(name, format(answer[[1]][[name]]), "\\n")\n'
    )


def _power_query(url: str, body: str | None) -> str:
    if body is None:
        content = f'File.Contents("C:\\{ROW_FILE}")'
    else:
        text = body.replace("#(", "#(#)(").replace('"', '""')
        content = f'Text.ToBinary("{text}")'
    return (
        f'let\n    Key = "{_PLACEHOLDER}",\n    Body = {content},\n'
        f'    // {LATER}, add #"{REQUEST_ID}" = "{ID}"\n'
        '    Headers = [#"Content-Type" = "application/json", Authorization = "Bearer " & Key],\n'
        f'    Response = Web.Contents("{url}", [Content = Body, Headers = Headers]),\n'
        "    Result = Table.FromRecords(Json.Document(Response))\n"
        "in\n    Result\n"
    )


def _sql(url: str, body: str | None) -> str:
    command = _curl(url, body, f'"$(cat {KEY_FILE})"').replace("'", "''")
    return (
        f"-- {_ADD_ID}\n"
        "CREATE TEMP TABLE answer (body text);\n"
        f"COPY answer FROM PROGRAM '{command}'\n"
        "    WITH (FORMAT csv, DELIMITER E'\\x01', QUOTE E'\\x02');\n"
        "SELECT pairs.name, pairs.value\n"
        "FROM answer, json_array_elements(body::json) AS found, "
        "json_each_text(found) AS pairs (name, value);\n"
        "DROP TABLE answer;\n"
    )
