"""The request of a prediction in the languages of its users; each snippet runs as pasted."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from dmls_core.data.encoder import Encoder, NumberFeature, number
from dmls_core.serving.model_config import table_name
from dmls_core.serving.tensors import table_request


class Snippet(BaseModel):
    """The request in one language."""

    language: str
    needs: str = Field(description="What must be installed.")
    code: str


def make_snippets(
    model: str, http: str, grpc: str, encoder: Encoder, columns: Mapping[str, list[Any]]
) -> list[Snippet]:
    """Return the snippets that send one row to the table endpoint at ``http`` or ``grpc`` (``host:port``)."""
    url = f"http://{http}/v2/models/{table_name(model)}/infer"
    # ASCII only: the request passes every shell, console and editor unchanged.
    body = json.dumps(json.loads(table_request(encoder, columns)))
    return [
        Snippet(language="curl", needs="curl", code=_curl(url, body)),
        Snippet(
            language="Python",
            needs="dmls, pandas, tritonclient[grpc]",
            code=_python(model, grpc, encoder, columns),
        ),
        Snippet(language="JavaScript", needs="Node.js 18 or newer", code=_javascript(url, body)),
        Snippet(language="R", needs="R 4.1 or newer, httr2, jsonlite", code=_r(url, body)),
        Snippet(language="Power Query", needs="Excel or Power BI", code=_power_query(url, body)),
        Snippet(language="SQL", needs="PostgreSQL as superuser, curl on its server", code=_sql(url, body)),
    ]


def _curl(url: str, body: str) -> str:
    return f"curl --silent --show-error --fail-with-body {shlex.quote(url)} --data {shlex.quote(body)}"


def _python(model: str, address: str, encoder: Encoder, columns: Mapping[str, list[Any]]) -> str:
    rows = "".join(
        f"    {json.dumps(feature.name)}: [{_literal(feature, columns[feature.name][0])}],\n"
        for feature in encoder.features
    )
    return (
        "import pandas as pd\n\nfrom dmls_core.serving import connect\n\n"
        f"rows = pd.DataFrame({{\n{rows}}})\n"
        f'with connect("{model}", grpc="{address}") as model:\n    print(model.predict(rows))\n'
    )


def _literal(feature: object, value: str | float | bool | None) -> str:
    if value is None:
        return "None"
    return repr(number(value) if isinstance(feature, NumberFeature) else str(value))


def _javascript(url: str, body: str) -> str:
    return (
        f'fetch("{url}", {{\n  method: "POST",\n  body: {json.dumps(body)},\n}})\n'
        "  .then((response) => response.json())\n"
        "  .then(({ outputs, error }) => {\n    if (error) throw new Error(error);\n"
        "    for (const { name, data } of outputs) console.log(name, data[0]);\n  });\n"
    )


def _r(url: str, body: str) -> str:
    return (
        f'library(httr2)\n\nbody <- {json.dumps(body)}\nanswer <- request("{url}") |>\n'
        '  req_body_raw(body, type = "application/json") |>\n  req_perform() |>\n'
        "  resp_body_json(check_type = FALSE)\n"
        'for (output in answer$outputs) cat(output$name, output$data[[1]], "\\n")\n'
    )


def _power_query(url: str, body: str) -> str:
    text = body.replace("#(", "#(#)(").replace('"', '""')
    return (
        f'let\n    Body = "{text}",\n    Headers = [#"Content-Type" = "application/json"],\n'
        f'    Response = Web.Contents("{url}", [Content = Text.ToBinary(Body), Headers = Headers]),\n'
        "    Outputs = Json.Document(Response)[outputs],\n"
        "    Result = Table.FromRecords(List.Transform(Outputs, each [name = [name], value = [data]{0}]))\n"
        "in\n    Result\n"
    )


def _sql(url: str, body: str) -> str:
    command = _curl(url, body).replace("'", "''")
    return (
        "CREATE TEMP TABLE answer (body text);\n"
        f"COPY answer FROM PROGRAM '{command}'\n"
        "    WITH (FORMAT csv, DELIMITER E'\\x01', QUOTE E'\\x02');\n"
        "SELECT output ->> 'name' AS name, output -> 'data' ->> 0 AS value\n"
        "FROM answer, json_array_elements(body::json -> 'outputs') AS output;\n"
        "DROP TABLE answer;\n"
    )
