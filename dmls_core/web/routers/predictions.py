"""REST API of a job's served model."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from dmls_core.data import request_rows
from dmls_core.web.dependencies import (
    BINARY_BODY,
    SCORE_SLOT,
    JobViewer,
    Name,
    PredictionSlots,
    Team,
    check_predictor,
)
from dmls_core.web.json_requests import Body, JsonRoute
from dmls_core.web.middleware import NOTES, REQUEST_ID
from dmls_core.web.services import predictions, table_predictions
from dmls_core.web.services.predictions import Prediction, Signature
from dmls_core.web.services.request_slots import PREDICTIONS, run_prediction
from dmls_core.web.services.table_predictions import RowsRequest

router = APIRouter(tags=["Predictions"], route_class=JsonRoute)
rows_router = APIRouter(tags=["Predictions"], dependencies=[Depends(check_predictor)])
"""Accepts API keys, too; no other route does."""


class Row(Body):
    """One row to predict."""

    row: dict[str, str | float | bool | None] = Field(
        max_length=10_000, description="Value of each column; null or an empty string if it is missing."
    )


@router.get("/jobs/{team}/{name}/signature", summary="Show the served model's columns")
def show_signature(caller: JobViewer) -> Signature:
    """Return the columns of the served model, with an example row; 404 if no version is served."""
    return predictions.read_signature(caller.team, caller.name)


@router.post("/jobs/{team}/{name}/predict", summary="Predict one row")
async def predict(caller: JobViewer, body: Row, request: Request) -> Prediction:
    """Return the live endpoint's prediction for one row, and its request in several languages.

    The snippets call `POST /predictions/...` with an API key.

    Every column must be present; null is a missing value. Values outside of training are listed as warnings.
    """
    origin = f"{request.url.scheme}://{request.url.netloc}"
    async with PREDICTIONS.hold(caller.user_name):
        return await run_prediction(predictions.predict_row, caller.team, caller.name, body.row, origin)


ROWS: dict[str, Any] = {
    request_rows.JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
    request_rows.CSV: {"schema": {"type": "string"}},
    request_rows.PARQUET: {"schema": {"type": "string", "format": "binary"}},
}


@rows_router.post(
    "/predictions/{team}/{name}",
    summary="Predict many rows",
    openapi_extra={"requestBody": {"required": True, "content": ROWS}},
    response_class=Response,
    responses={200: {"description": "The predictions.", "content": ROWS}},
)
async def predict_rows(
    request: Request,
    team: Team,
    name: Name,
    slots: PredictionSlots,
    request_id: Annotated[
        str,
        Header(
            alias=REQUEST_ID,
            max_length=128,
            description="Id of the request in the inference log, to which delayed labels refer; by default a "
            "new one. The response has it, too.",
        ),
    ] = "",
    strict: Annotated[
        bool,
        Query(
            description="Respond with 422 to columns that the model does not have, unknown categories, "
            "values out of the training's range, and rows without values."
        ),
    ] = False,
) -> Response:
    """Return the predictions for up to 100,000 rows in 32 MiB, in their order.

    Send an API key of the job or of its team as `Authorization: Bearer dmls_...`, or sign in as elsewhere.

    `Content-Type` is the format of the rows, `Accept` that of the predictions, JSON by default: a list of
    objects, a CSV, or Parquet. A CSV of rows is written as `[data]` of the job's spec says, such as with
    decimal commas; one of predictions has commas, decimal points and a header. A prediction has `prediction`
    and, for a classification, `probability_<label>` for each label. Columns that the model does not have are
    ignored.

    The header `DMLS-Notes` counts what is unlike the training data, such as `unknown-category=2,
    out-of-range=1, empty-row=1, ignored-column=3`. In JSON, such a row has `notes`.
    """
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent not in request_rows.MEDIA_TYPES:
        raise HTTPException(415, f"Content-Type must be one of {', '.join(request_rows.MEDIA_TYPES)}")
    accept = _accepted(request.headers.get("accept", ""))
    request_id = request_id or uuid.uuid4().hex
    table = RowsRequest(team, name, sent, accept, request_id, strict)
    if slots is PREDICTIONS:
        predicted = await table_predictions.predict_content(table, await request.body())
    else:
        predicted = await table_predictions.predict_stream(table, request.stream())
    notes = {NOTES: predicted.notes} if predicted.notes else {}
    return Response(predicted.content, media_type=accept, headers={REQUEST_ID: request_id, **notes})


def _accepted(header: str) -> str:
    """Return the first media type of ``Accept`` that there is, or respond with 406."""
    media_types = [part.partition(";")[0].strip().lower() for part in header.split(",")]
    for media_type in media_types:
        if media_type in request_rows.MEDIA_TYPES:
            return media_type
    if any(media_type in {"", "*/*", "application/*"} for media_type in media_types):
        return request_rows.JSON
    raise HTTPException(406, f"Accept must name one of {', '.join(request_rows.MEDIA_TYPES)}")


@router.post(
    "/scores/{team}/{name}",
    summary="Score a CSV",
    openapi_extra=BINARY_BODY,
    response_class=StreamingResponse,
    dependencies=SCORE_SLOT,
)
async def score(
    request: Request,
    caller: JobViewer,
    file: Annotated[str, Query(max_length=255, description="Name of the file, for messages.")] = "data.csv",
    strict: Annotated[
        bool,
        Query(
            description="Respond with 422 to unknown categories, values out of the training's range, and "
            "rows without values."
        ),
    ] = False,
) -> StreamingResponse:
    """Return a CSV with the predictions added to every row, as they are made.

    The file is read as `[data]` of the job's spec says, so a CSV may have semicolons and decimal commas; its
    name shows whether it is compressed or has another format. The predictions have commas and decimal points.

    Rows and columns keep their order. An error in the first rows has its own response; a later one cuts the
    response off.
    """
    from dmls_core.web.services.predictions import score_csv

    chunks = await score_csv(request.stream(), caller.team, caller.name, file, strict=strict)
    return StreamingResponse(chunks, media_type="text/csv; charset=utf-8")
