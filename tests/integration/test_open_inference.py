"""The Open Inference Protocol over HTTP, described in OpenAPI: Triton answers so, whatever is sent."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dmls_core.serving.triton.model_config import table_name
from tests.support.table_endpoint import Served, post, request_body
from tests.support.trained_run import user_rows

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 25
DATATYPES = "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 BYTES".split()


def record(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """Return the schema of an object; all properties are required unless ``required`` names some."""
    return {"type": "object", "required": list(required or properties), "properties": properties}


def many(items: dict[str, Any], **limits: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **limits}


TEXT = {"type": "string"}
SIZE = {"type": "integer", "minimum": -1, "maximum": 64}
NUMBER = {"type": "number", "minimum": -1e300, "maximum": 1e300}
VALUE: dict[str, Any] = {"oneOf": [NUMBER, TEXT, {"type": "boolean"}, {"type": "null"}]}
METADATA = record(name=TEXT, datatype={"enum": DATATYPES}, shape=many({"type": "integer"}))
OUTPUT = record(name=TEXT, datatype={"enum": DATATYPES}, shape=many({"type": "integer"}), data=many(VALUE))


ERROR = {
    "description": "JSON, which Triton sometimes calls text",
    "content": {kind: {"schema": {}} for kind in ("application/json", "text/plain")},
}


def operation(
    answer: dict[str, Any] | None, *codes: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return an operation that answers 200 with JSON, or with nothing; the other codes have an error."""
    responses: dict[str, Any] = dict.fromkeys(codes, ERROR)
    responses["200"] = json_of(answer) if answer else {"description": "ok"}
    request = {"requestBody": {**json_of(body), "required": True}} if body else {}
    return {"responses": responses, **request}


def json_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": "JSON", "content": {"application/json": {"schema": schema}}}


def protocol(model: str, columns: list[str]) -> dict[str, Any]:
    """Describe the protocol's HTTP for one model with these columns."""
    closed: dict[str, Any] = {"additionalProperties": False}
    tensor = closed | record(
        name={"enum": [*columns, "another"]},
        datatype={"enum": DATATYPES},
        shape=many(SIZE, maxItems=3),
        data=many(VALUE, maxItems=9),
    )
    wanted = many(closed | record(name=TEXT), maxItems=3)
    request = closed | record(("inputs",), inputs=many(tensor, maxItems=4), id=TEXT, outputs=wanted)
    answer = record(model_name={"const": model}, model_version=TEXT, outputs=many(OUTPUT))
    about = record(name={"const": model}, versions=many(TEXT), inputs=many(METADATA), outputs=many(METADATA))
    place = f"/v2/models/{model}"
    paths = {
        "/v2": {"get": operation(record(name=TEXT, version=TEXT, extensions=many(TEXT)))},
        "/v2/health/live": {"get": operation(None)},
        "/v2/health/ready": {"get": operation(None)},
        place: {"get": operation(about)},
        f"{place}/ready": {"get": operation(None)},
        f"{place}/infer": {"post": operation(answer, "400", "500", body=request)},
    }
    return {"openapi": "3.1.0", "info": {"title": "Open Inference Protocol", "version": "2"}, "paths": paths}


@pytest.fixture(scope="module")
def parts(triton: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with triton.client(timeout=60.0) as client:
        yield Served(triton.repository, client, tmp_path_factory.mktemp("protocol") / "run")


def test_whatever_is_sent_is_answered_as_the_protocol_says(parts: Any) -> None:
    url = f"http://{parts.client.addresses['http']}"
    model = table_name(parts.name)
    body = request_body(parts.encoder, user_rows(2))
    description = protocol(model, [tensor["name"] for tensor in body["inputs"]])
    fuzzed = []
    for found in schemathesis.openapi.from_dict(description).get_all_operations():
        fuzzed.append(found.ok().path)

        @given(case=found.ok().as_strategy())
        @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True)
        def fuzz(case: schemathesis.Case) -> None:
            answer = case.call_and_validate(base_url=url, checks=CHECKS, timeout=60)
            if answer.status_code == 400:
                assert answer.json()["error"], "an error says why"
            if answer.status_code == 500:  # Triton 2.51, for sizes such as -1 and 1.0
                assert answer.json()["error"].startswith("Unable to parse")

        fuzz()
    assert sorted(fuzzed) == sorted(description["paths"])
    assert post(parts.client.addresses["http"], model, body)[0] == 200, "it answers right requests still"
