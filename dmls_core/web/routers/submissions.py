"""REST API of submissions: schema inference, specs, uploads."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request
from pydantic import Base64Bytes, Field
from starlette.concurrency import run_in_threadpool

from dmls_core.spec.data_table import Data
from dmls_core.store.base import MAX_PARTS
from dmls_core.web.dependencies import (
    BINARY_BODY,
    FILE_SLOT,
    NAME,
    Caller,
    FileName,
    JobCaller,
    Submitter,
    check_site_access,
    may,
)
from dmls_core.web.json_requests import Body, JsonRoute
from dmls_core.web.services import estimates, stored_schema, submissions
from dmls_core.web.services.estimates import Estimate
from dmls_core.web.services.submissions import (
    CheckedSpec,
    DataFileList,
    InferredSchema,
    StartedUpload,
    SubmissionState,
    Submitted,
)

router = APIRouter(tags=["Submissions"], route_class=JsonRoute)

WITH_ROLE = [Depends(check_site_access)]

Columns = Annotated[list[str], Field(max_length=20_000, description="Columns of the data, if known.")]
Upload = Annotated[str, Path(min_length=1, max_length=512, description="ID of the upload.")]
Size = Annotated[int, Query(ge=1, le=1 << 60, description="Bytes of the whole file.")]


def check_change(caller: Submitter) -> JobCaller:
    """Respond with 403 if the job exists and the caller may not change it."""
    if submissions.job_exists(caller.team, caller.name) and not may(
        caller.user, "PUT", caller.team, caller.name
    ):
        raise HTTPException(403, f"Airflow does not allow you to change the DAG {caller.dag_id}")
    return caller


def parse_reading(
    data: Annotated[
        str | None,
        Query(max_length=2_000, description="`[data]` as JSON: how the file is written. Default: detected."),
    ] = None,
) -> Data | None:
    """Respond with 422 unless this is a valid ``[data]``."""
    return submissions.parse_data(data) if data else None


Reading = Annotated[Data | None, Depends(parse_reading)]

Changer = Annotated[JobCaller, Depends(check_change)]
"""May submit to the job, and change it if it exists."""


class SpecDocument(Body):
    """A spec as an object."""

    document: dict[str, Any] = Field(
        description='Keys and tables of the spec. An integral float is an object: 1.0 is `{"float": 1}`.'
    )
    columns: Columns = Field(default_factory=list)


class SpecToml(Body):
    """A spec as TOML."""

    toml: str = Field(max_length=1 << 20)
    columns: Columns = Field(default_factory=list)


class SpecFile(Body):
    """The spec to submit."""

    toml: str = Field(max_length=256 * 1024, description="Content of `spec.toml`.")
    etag: str | None = Field(
        None, max_length=200, description="ETag of the spec that was edited; null overwrites any spec."
    )


class EstimateBody(Body):
    """A spec, and a data file of the job or the beginning of a local one."""

    toml: str = Field(max_length=256 * 1024)
    file: str = Field(max_length=255)
    size: int = Field(0, ge=0, le=1 << 60, description="Bytes of the whole file.")
    sample: Base64Bytes | None = Field(
        None, description="The first bytes of the file; null reads it from the job's folder."
    )


@router.get("/catalogue", summary="List models and hyperparameters")
def show_catalogue() -> dict[str, Any]:
    """Return the models with their metrics and hyperparameters, each with a suggested range."""
    from dmls_core.models.catalogue import catalogue_form

    return dict(submissions.mark_floats(catalogue_form()))


@router.post(
    "/sniff",
    summary="Infer the schema of a file",
    openapi_extra=BINARY_BODY,
    dependencies=[*WITH_ROLE, *FILE_SLOT],
)
async def infer_schema(
    request: Request,
    file: FileName,
    size: Annotated[int, Query(ge=0, le=1 << 60, description="Bytes of the whole file.")],
    data: Reading,
) -> InferredSchema:
    """Infer the schema of a data file before it is uploaded.

    The body is a text of up to 2 MiB, or a whole file of another format, of up to 8 MiB. Of a larger text, it
    is the first MiB, which may be followed by pieces of 64 KiB each from places spread over the file. Upload
    larger files of other formats, and infer their schema in S3.
    """
    content = await request.body()
    return await run_in_threadpool(submissions.infer_schema, file, content, size, data)


@router.post("/specs/toml", summary="Write a spec as TOML", dependencies=WITH_ROLE)
def write_spec(body: SpecDocument) -> CheckedSpec:
    """Return a spec as TOML, with the errors that admission would find in it."""
    return submissions.write_spec(body.document, body.columns)


@router.post("/specs/check", summary="Check a spec", dependencies=WITH_ROLE)
def check_spec(body: SpecToml) -> CheckedSpec:
    """Return the errors that admission would find in a spec, each with its line, column, and a hint."""
    return submissions.check_spec(body.toml, body.columns)


@router.get("/drops/{team}", summary="List data files in S3")
def list_data_files(
    user: Caller, team: Annotated[str, Path(pattern=NAME, description="Team that owns the jobs.")]
) -> DataFileList:
    """Return the data files in the folders of those of a team's jobs that the caller may submit to."""
    return submissions.list_data_files(user, team)


@router.get("/drops/{team}/{name}", summary="Show a submission and its status")
def show_submission(
    caller: Submitter,
    fingerprint: Annotated[str, Query(max_length=64, description="Of the submission to follow.")] = "",
) -> SubmissionState:
    """Return what a job's folder holds, and the status of its submission."""
    return submissions.read_submission(caller.team, caller.name, fingerprint)


@router.get("/drops/{team}/{name}/sniff", summary="Infer the schema of a file in S3", dependencies=FILE_SLOT)
def infer_stored_schema(caller: Submitter, file: FileName, data: Reading) -> InferredSchema:
    """Infer the schema of a data file in a job's folder."""
    return stored_schema.infer_stored_schema(caller.team, caller.name, file, data)


@router.post(
    "/drops/{team}/{name}/estimate", summary="Estimate the time and memory of a run", dependencies=FILE_SLOT
)
def estimate(caller: Submitter, body: EstimateBody) -> Estimate:
    """Time a few small fits on a sample of the data, as `dmls plan` does; takes seconds."""
    if body.sample is None:
        return estimates.estimate_stored(caller.team, caller.name, body.toml, body.file)
    return estimates.estimate(body.toml, body.file, body.sample, max(body.size, len(body.sample)))


@router.post("/drops/{team}/{name}/uploads", summary="Start an upload", status_code=201)
def start_upload(caller: Changer, file: FileName, size: Size) -> StartedUpload:
    """Start to upload a data file in parts."""
    return submissions.start_upload(caller.team, caller.name, file, size)


@router.put(
    "/drops/{team}/{name}/uploads/{upload}/{number}",
    summary="Upload a part",
    status_code=204,
    openapi_extra=BINARY_BODY,
    dependencies=FILE_SLOT,
)
async def write_part(
    request: Request,
    caller: Submitter,
    upload: Upload,
    number: Annotated[int, Path(ge=1, le=MAX_PARTS, description="Number of the part, from 1.")],
    file: FileName,
) -> None:
    """Write a part; sent again, it replaces the previous one. The file exists once the upload is finished."""
    job = caller.team, caller.name
    await run_in_threadpool(submissions.write_part, *job, file, upload, number, await request.body())


@router.post("/drops/{team}/{name}/uploads/{upload}/finish", summary="Finish an upload", status_code=204)
def finish_upload(caller: Changer, upload: Upload, file: FileName, size: Size) -> None:
    """Assemble the parts into the file; 409 if they are not the whole file."""
    submissions.complete_upload(caller.team, caller.name, file, upload, size)


@router.delete("/drops/{team}/{name}/uploads/{upload}", summary="Cancel an upload", status_code=204)
def cancel_upload(caller: Submitter, upload: Upload, file: FileName) -> None:
    """Delete the parts of an upload."""
    submissions.cancel_upload(caller.team, caller.name, file, upload)


@router.put("/drops/{team}/{name}/spec", summary="Submit the spec")
def submit_spec(caller: Changer, body: SpecFile) -> Submitted:
    """Write `spec.toml`, which completes the submission: upload the data first.

    The spec is written even if it is invalid: admission validates it, as it does for a submission by S3.
    With `etag`, an invalid spec and one that has changed since are refused instead.
    """
    return submissions.submit_spec(caller.team, caller.name, body.toml, etag=body.etag, user=caller.user_name)
