"""Write docs/reference/rest-api.md from the OpenAPI document of the REST API.

With ``--check``, only report whether the page is up to date.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "reference" / "rest-api.md"

HEAD = """# REST API

<!-- Written by docs/rest_api_reference.py from the code: change that, then run `make docs`. -->

Paths are relative to `/dmls/api/v1` on Airflow's API server. The API page of DMLS in Airflow shows the same
reference; the OpenAPI document is at `/dmls/api/v1/openapi.json`.

- **Authentication**: as in Airflow, send a token of `POST /auth/token` as `Authorization: Bearer ...`.
  `POST /predictions/...` also accepts an [API key](../how-to/call-a-model.md#api-keys).
- **Access**: access to a job is access to its DAG `dmls.<team>.<name>`; see
  [who may do what](../how-to/use-the-page.md#who-may-do-what).
- **Errors**: problem details (RFC 9457, `application/problem+json`) with `type`, `title`, `status`, `detail`,
  and `problems`: the errors in the input, each with `message`, `hint`, `file`, `line`, `column`, `key`,
  `found`, and `expected`.
- **JSON** in requests is that of RFC 8259: a key that an object repeats, `NaN`, `Infinity` and `1e999` are errors.
- **Limits**: a request body has at most 1 MiB; `POST /predictions/...` accepts 32 MiB, an uploaded part 96 MiB,
  `POST /scores/...` and `PUT /scoring/.../file` 512 MiB, and other routes that read a file 72 MiB. A client that keeps the
  server waiting for more than 30 s and a second for each 64 KiB gets 408.
- **Busy**: a few requests with large bodies run at a time, and a share of them for each caller; the others wait. 429 (your other
  requests have your share) and 503 (requests of others) say in `Retry-After` after how many seconds to try again.
- **Floats in a spec**: JSON does not distinguish 1 and 1.0, and specs do. A spec as JSON contains an integral
  float as `{"float": 1}`.
"""

Schema = Mapping[str, Any]

JOB_IN_PATH = ("team", "name")


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document; Airflow is configured in a scratch folder, without a database."""
    os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="dmls-docs-"))
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    from dmls_core.web.app import API, create_app

    document = create_app().openapi()
    document["paths"] = {path.removeprefix(API): found for path, found in document["paths"].items()}
    return document


def page(document: Schema) -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_operations(document), *_schemas(document["components"]["schemas"])])


def _operations(document: Schema) -> Iterator[str]:
    groups: dict[str, list[tuple[str, str, Schema]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append((method, path, operation))
    for group, found in groups.items():
        yield f"## {group}\n"
        for method, path, operation in found:
            yield from _operation(method, path, operation)


def _operation(method: str, path: str, operation: Schema) -> Iterator[str]:
    yield f"### {operation['summary']}\n"
    yield f"`{method.upper()} {path}`\n"
    if text := operation.get("description"):
        yield f"{text}\n"
    parameters = [
        found
        for found in operation.get("parameters", ())
        if found["name"] not in JOB_IN_PATH or found["in"] != "path"
    ]
    if parameters:
        yield from _table(
            ("Parameter", "In", "Type", "Description"),
            (
                (
                    f"`{found['name']}`"
                    + (" (required)" if found["required"] and found["in"] != "path" else ""),
                    found["in"],
                    _type(found["schema"]),
                    found.get("description", ""),
                )
                for found in parameters
            ),
        )
    if body := operation.get("requestBody"):
        yield f"Body: {_content(body['content'])}\n"
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            content = _content(response.get("content", {}))
            yield f"Response: {status}{', ' + content if content else ''}\n"


def _schemas(schemas: Schema) -> Iterator[str]:
    yield "## Schemas\n"
    for name, schema in sorted(schemas.items()):
        if name in ("HTTPValidationError", "ValidationError"):
            continue
        yield f"### Schema: {name}\n"
        # Attributes of a dataclass are documented in its docstring; the table shows the fields.
        yield f"{schema.get('description', '').partition('Attributes:')[0].strip()}\n"
        attributes = _attributes(schema.get("description", ""))
        required = schema.get("required", ())
        yield from _table(
            ("Field", "Type", "Description"),
            (
                (
                    f"`{field}`" + ("" if field in required else " (optional)"),
                    _type(found),
                    found.get("description", "") or attributes.get(field, ""),
                )
                for field, found in schema.get("properties", {}).items()
            ),
        )


def _attributes(docstring: str) -> dict[str, str]:
    """Return the descriptions in the ``Attributes:`` section of a docstring."""
    found: dict[str, str] = {}
    field = ""
    for line in docstring.partition("Attributes:\n")[2].splitlines():
        text = line.strip()
        name, colon, rest = text.partition(": ")
        if colon and name.isidentifier() and not line.startswith(" " * 8):
            field, found[name] = name, rest
        elif field:
            found[field] += f" {text}"
    return {
        name: text.replace("``", "`")[:1].upper() + text.replace("``", "`")[1:]
        for name, text in found.items()
    }


def _content(content: Schema) -> str:
    return "; ".join(
        _type(found["schema"]) if media == "application/json" else f"`{media}`"
        for media, found in content.items()
        if media != "application/json" or found.get("schema")
    )


def _type(schema: Schema) -> str:
    """Return the type of a value, with links to schemas."""
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#schema-{name.lower()})"
    if choices := schema.get("anyOf"):
        return " or ".join(_type(choice) for choice in choices)
    if values := schema.get("enum"):
        return ", ".join(f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}" if schema.get("items") else "array"
    text = {None: "any", "object": "object"}.get(schema.get("type"), str(schema.get("type")))
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping) and extra:
        text = f"object of {_type(extra)}"
    return (
        f"{text}, default `{json.dumps(schema['default'])}`"
        if schema.get("default") not in (None, "")
        else text
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;').replace(chr(10), ' ') for cell in row)} |"
    yield ""


def main() -> int:
    """Write or check the page; return the exit code."""
    text = page(openapi()).rstrip() + "\n"
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text() != text:
            sys.stderr.write(f"{PAGE.name} is not up to date: run docs/rest_api_reference.py\n")
            return 1
        return 0
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
