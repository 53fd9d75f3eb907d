"""REST API of batch scoring: a job's files, their state and their predictions."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from dmls_core.web.dependencies import BINARY_BODY, FILE_SLOT, JobViewer, Submitter
from dmls_core.web.services import scored_files
from dmls_core.web.services.scored_files import FileCheck, ScoredFile, ScoredFiles

router = APIRouter(prefix="/scoring/{team}/{name}", tags=["Batch scoring"])

File = Annotated[
    str, Query(min_length=1, max_length=255, description="Name of the file; its suffix gives the format.")
]
Size = Annotated[int, Query(ge=1, le=1 << 60, description="Bytes of the whole file.")]


@router.get("", summary="List scored files")
def list_scored_files(caller: JobViewer) -> ScoredFiles:
    """Return the files in the job's folder of `scoring/`, latest first, each with its state."""
    return scored_files.list_scored_files(caller.team, caller.name)


@router.post(
    "/check", summary="Check a file before its upload", openapi_extra=BINARY_BODY, dependencies=FILE_SLOT
)
async def check_file(request: Request, caller: Submitter, file: File, size: Size) -> FileCheck:
    """Return the columns of a file, or 422 if the served version cannot predict its rows.

    The body is the first MiB, a whole Parquet file of up to 8 MiB, or the last MiB of a larger one.
    """
    content = await request.body()
    return await run_in_threadpool(
        scored_files.check_file, caller.team, caller.name, file, content, max(size, len(content))
    )


@router.put(
    "/file", summary="Submit a file", status_code=202, openapi_extra=BINARY_BODY, dependencies=FILE_SLOT
)
async def submit_file(request: Request, caller: Submitter, file: File) -> ScoredFile:
    """Write a file of up to 512 MiB to `scoring/`; it replaces a file of the same name.

    It is checked as by `POST .../check` first. Ask for its state until it is `scored` or `failed`.
    """
    with tempfile.TemporaryDirectory(prefix="dmls-scoring-") as folder:
        path = Path(folder) / "upload"
        with path.open("wb") as target:
            async for part in request.stream():
                await run_in_threadpool(target.write, part)
        return await run_in_threadpool(
            scored_files.submit_file, caller.team, caller.name, file, path, caller.user_name
        )


@router.get("/file", summary="Show the state of a file")
def show_file(caller: JobViewer, file: File) -> ScoredFile:
    """Return how far the scoring of a file is."""
    return scored_files.read_scored_file(caller.team, caller.name, file)


@router.post("/again", summary="Score a file again", status_code=202)
def score_again(caller: Submitter, file: File) -> ScoredFile:
    """Have the served version predict a file in `scoring/` again; its earlier predictions stay until then."""
    return scored_files.score_again(caller.team, caller.name, file, caller.user_name)


@router.delete("/file", summary="Delete a file and its predictions", status_code=204)
def delete_file(caller: Submitter, file: File) -> None:
    """Delete a file from `scoring/`, and its predictions from `scored/`."""
    scored_files.delete_file(caller.team, caller.name, file, caller.user_name)


@router.get("/result", summary="Download predictions", response_class=StreamingResponse)
def download_predictions(caller: Submitter, file: File) -> StreamingResponse:
    """Return all columns and rows of a scored file with their predictions, as CSV, or Parquet for Parquet."""
    name, chunks = scored_files.open_predictions(caller.team, caller.name, file)
    return StreamingResponse(
        chunks,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"},
    )
