"""The request of a prediction in the languages of its users; each snippet runs as pasted.

Each sends one row to the REST API, with the API key in the environment variable ``KEY``, or in a file or a
placeholder where programs have no environment. No key is an argument of a program, which other users see.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from dmls_core.settings import API_KEY as KEY

PLACEHOLDER = "dmls_..."

KEY_FILE = "dmls_api_key"
"""File with the key in the data folder of PostgreSQL, for its server."""


class Snippet(BaseModel):
    """The request in one language."""

    language: str
    needs: str = Field(description="What must be installed or set.")
    code: str


def make_snippets(url: str, row: Mapping[str, Any]) -> list[Snippet]:
    """Return the snippets that post one row to ``url``, the route that predicts rows of a job."""
    # ASCII only: the request passes every shell, console and editor unchanged.
    body = json.dumps([row])
    return [
        Snippet(language="curl", needs=f"curl, {KEY}", code=_curl(url, body, f'"${KEY}"')),
        Snippet(language="Python", needs=KEY, code=_python(url, row)),
        Snippet(language="JavaScript", needs=f"Node.js 18 or newer, {KEY}", code=_javascript(url, body)),
        Snippet(language="R", needs=f"R 4.1 or newer, httr2, jsonlite, {KEY}", code=_r(url, body)),
        Snippet(language="Power Query", needs="Excel or Power BI; your key", code=_power_query(url, body)),
        Snippet(
            language="SQL",
            needs=f"PostgreSQL as superuser; on its server curl, and the key in the file {KEY_FILE} of its "
            "data folder",
            code=_sql(url, body),
        ),
    ]


def _curl(url: str, body: str, key: str) -> str:
    return (
        f"printf 'Authorization: Bearer %s' {key} |\n"
        f"  curl --silent --show-error --fail-with-body {shlex.quote(url)} --header @- \\\n"
        f"  --header 'Content-Type: application/json' --data {shlex.quote(body)}"
    )


def _python(url: str, row: Mapping[str, Any]) -> str:
    values = "".join(f"    {name!a}: {value!a},\n" for name, value in row.items())
    return (
        "import json\nimport os\nfrom urllib.request import Request, urlopen\n\n"
        f"row = {{\n{values}}}\n"
        "request = Request(\n"
        f'    "{url}",\n'
        "    json.dumps([row]).encode(),\n"
        "    {\n"
        f'        "Authorization": f"Bearer {{os.environ[\'{KEY}\']}}",\n'
        '        "Content-Type": "application/json",\n'
        "    },\n"
        ")\n"
        "with urlopen(request) as response:\n    print(json.load(response))\n"
    )


def _javascript(url: str, body: str) -> str:
    return (
        f'fetch("{url}", {{\n  method: "POST",\n'
        f"  headers: {{ Authorization: `Bearer ${{process.env.{KEY}}}`, "
        '"Content-Type": "application/json" },\n'
        f"  body: {json.dumps(body)},\n}})\n"
        "  .then(async (response) => [response.ok, await response.json()])\n"
        "  .then(([ok, found]) => {\n    if (!ok) throw new Error(found.detail);\n"
        "    console.log(found[0]);\n  });\n"
    )


def _r(url: str, body: str) -> str:
    return (
        f'library(httr2)\n\nbody <- {json.dumps(body)}\nanswer <- request("{url}") |>\n'
        f'  req_auth_bearer_token(Sys.getenv("{KEY}")) |>\n'
        '  req_body_raw(body, type = "application/json") |>\n  req_perform() |>\n'
        "  resp_body_json()\n"
        'for (name in names(answer[[1]])) cat(name, format(answer[[1]][[name]]), "\\n")\n'
    )


def _power_query(url: str, body: str) -> str:
    text = body.replace("#(", "#(#)(").replace('"', '""')
    return (
        f'let\n    Key = "{PLACEHOLDER}",\n    Body = "{text}",\n'
        '    Headers = [#"Content-Type" = "application/json", Authorization = "Bearer " & Key],\n'
        f'    Response = Web.Contents("{url}", [Content = Text.ToBinary(Body), Headers = Headers]),\n'
        "    Result = Table.FromRecords(Json.Document(Response))\n"
        "in\n    Result\n"
    )


def _sql(url: str, body: str) -> str:
    command = _curl(url, body, f'"$(cat {KEY_FILE})"').replace("'", "''")
    return (
        "CREATE TEMP TABLE answer (body text);\n"
        f"COPY answer FROM PROGRAM '{command}'\n"
        "    WITH (FORMAT csv, DELIMITER E'\\x01', QUOTE E'\\x02');\n"
        "SELECT pairs.name, pairs.value\n"
        "FROM answer, json_array_elements(body::json) AS found, "
        "json_each_text(found) AS pairs (name, value);\n"
        "DROP TABLE answer;\n"
    )
