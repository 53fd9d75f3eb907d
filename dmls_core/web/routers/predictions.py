"""REST API of a job's served model."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from dmls_core.store import layout
from dmls_core.web.dependencies import BINARY_BODY, JobViewer
from dmls_core.web.services import predictions
from dmls_core.web.services.predictions import Prediction, Signature

router = APIRouter(tags=["Predictions"])


class Row(BaseModel):
    """One row to predict."""

    row: dict[str, str | float | bool | None] = Field(
        max_length=10_000, description="Value of each column; null or an empty string if it is missing."
    )


@router.get("/jobs/{team}/{name}/signature", summary="Show the served model's columns")
def show_signature(caller: JobViewer) -> Signature:
    """Return the columns of the served model, with an example row; 404 if no version is served."""
    return predictions.read_signature(caller.team, caller.name)


@router.post("/jobs/{team}/{name}/predict", summary="Predict one row")
def predict(caller: JobViewer, body: Row) -> Prediction:
    """Return the live endpoint's prediction for one row, and the same request in several languages.

    Every column must be present; null is a missing value. Values outside of training are listed as warnings.
    """
    return predictions.predict_row(caller.team, caller.name, body.row)


@router.post(
    "/scores/{team}/{name}",
    summary="Score a CSV",
    openapi_extra=BINARY_BODY,
    response_class=StreamingResponse,
)
async def score(
    request: Request,
    caller: JobViewer,
    file: Annotated[str, Query(max_length=255, description="Name of the file, for messages.")] = "data.csv",
) -> StreamingResponse:
    """Return a CSV with the predictions added to every row, as they are made.

    Rows and columns keep their order. An error in the first rows has its own response; a later one cuts the
    response off.
    """
    from dmls_core.web.services.predictions import score_csv

    chunks = await score_csv(request.stream(), layout.model_name(caller.team, caller.name), file)
    return StreamingResponse(chunks, media_type="text/csv; charset=utf-8")
