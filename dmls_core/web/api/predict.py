"""Ask the served model of a job: one row from a form, or a CSV."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from dmls_core.airflow.connections import open_repository
from dmls_core.airflow.settings import airflow_settings
from dmls_core.data.encoder import CategoryFeature, Encoder, number
from dmls_core.errors import NotFoundError
from dmls_core.store import layout
from dmls_core.web.api.submit import RAW
from dmls_core.web.security import JobCaller, job_may

if TYPE_CHECKING:
    from dmls_core.serving import Repository

router = APIRouter(tags=["Try it"])

Looker = Annotated[JobCaller, Depends(job_may("GET"))]

SECONDS = 20.0
"""How long Triton may take for one row."""


class Row(BaseModel):
    """One row to predict."""

    row: dict[str, str | float | bool | None] = Field(
        max_length=10_000, description="Value of each column; null or an empty text where it is missing."
    )


@router.get("/jobs/{team}/{name}/signature", summary="Show the served model's columns")
def signature(caller: Looker) -> dict[str, Any]:
    """Return the columns of the model that is served: kind, range or categories, and a row to begin with.

    404 where nothing is served.
    """
    model = layout.model_name(caller.team, caller.name)
    repository = open_repository(airflow_settings())
    version, encoder = _served(repository, model)
    ranges = repository.read(model, version, "model.json").get("ranges", {})
    example = repository.read(model, version, "golden.json")["columns"]
    return {
        "model": model,
        "version": version,
        "target": encoder.target.name,
        "labels": encoder.target.labels,
        "columns": [
            {
                "name": feature.name,
                "kind": "category" if isinstance(feature, CategoryFeature) else "number",
                "categories": feature.categories if isinstance(feature, CategoryFeature) else None,
                "range": ranges.get(feature.name),
                "example": _plain(example.get(feature.name, [None])[0]),
            }
            for feature in encoder.features
        ],
    }


@router.post("/jobs/{team}/{name}/predict", summary="Predict one row")
def predict(caller: Looker, body: Row) -> dict[str, Any]:
    """Ask the live table endpoint for one row; also returned is the same request as curl and as Python."""
    from dmls_core.serving import connect
    from dmls_core.serving.client import split_addresses
    from dmls_core.serving.served_model import PREDICTION, PROBABILITY

    settings = airflow_settings()
    model = layout.model_name(caller.team, caller.name)
    version, encoder = _served(open_repository(settings), model)
    columns = {name: [_value(body.row.get(name))] for name in encoder.feature_names}
    with connect(model, grpc=split_addresses(settings.triton_grpc)[0], timeout=SECONDS) as served:
        begun = time.perf_counter()
        answer = served.predict(columns)
        seconds = time.perf_counter() - begun
        labels = served.labels
    found = answer[PREDICTION][0]
    return {
        "prediction": str(found) if labels else float(found),
        "probabilities": [
            {"label": label, "probability": float(answer[PROBABILITY + label][0])} for label in labels
        ],
        "target": encoder.target.name,
        "version": version,
        "milliseconds": round(1000 * seconds, 2),
        "curl": _curl(model, split_addresses(settings.triton_http)[0], encoder, columns),
        "python": _python(model, split_addresses(settings.triton_grpc)[0], encoder, columns),
    }


@router.post(
    "/scores/{team}/{name}",
    summary="Score a CSV",
    openapi_extra=RAW,
    response_class=StreamingResponse,
)
async def score(
    request: Request,
    caller: Looker,
    file: Annotated[str, Query(max_length=255, description="The file's name, for messages.")] = "data.csv",
) -> StreamingResponse:
    """Predict every row of a CSV, the body, and return it with the predictions added, as it is made.

    Rows and columns stay as they are. An error in the first rows is told as such; one that comes later ends
    the answer before its end.
    """
    from dmls_core.web.api.predict_file import scored

    chunks = await scored(request.stream(), layout.model_name(caller.team, caller.name), file)
    return StreamingResponse(chunks, media_type="text/csv; charset=utf-8")


def _served(repository: Repository, model: str) -> tuple[int, Encoder]:
    version = repository.serving(model)
    if version is None:
        raise NotFoundError(f"no version of {model} is served yet: deploy one first")
    return version, Encoder.from_json(repository.read(model, version, "encoder.json"))


def _value(value: str | float | bool | None) -> str | float | bool | None:
    return None if isinstance(value, str) and not value.strip() else value


def _plain(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def _curl(model: str, address: str, encoder: Encoder, columns: Mapping[str, list[Any]]) -> str:
    from dmls_core.serving.model_config import table_name
    from dmls_core.serving.tensors import table_request

    url = f"http://{address}/v2/models/{table_name(model)}/infer"
    request = shlex.quote(table_request(encoder, columns))
    return f"curl --silent --show-error --fail-with-body {shlex.quote(url)} --data {request}"


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
    return repr(str(value) if isinstance(feature, CategoryFeature) else number(value))
